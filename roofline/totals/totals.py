"""Device work by kind, by phase and by precision.

Each piece of device work counts once in each of the three, so each adds up to the device time. The
FLOPs, bytes and roofs are those of the rows of operators.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import polars as pl

from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.kernel_names.decode import decode
from gpuprof.roofline.points.classify import WorkKey, WorkVerdict
from gpuprof.roofline.points.points import OF_POINTS, Machine, op_points_by
from gpuprof.roofline.total_figures import Subtotal, Totals
from gpuprof.roofline.totals.work_kinds import COMMUNICATION, COPY, kind_of_work
from gpuprof.roofline.work.work import Signature, Work

_KIND_KEYS: Final = ("kind", "name", "signature", "phase")
_PART_KEYS: Final = ("work_kind", "recompute", "named_precision", "uncounted")
_PHASE_UNKNOWN: Final = "phase unknown"
NO_ARITHMETIC: Final = "no arithmetic"
PRECISION_UNKNOWN: Final = "unknown"
_WITHOUT_ARITHMETIC: Final = (COMMUNICATION, COPY)


@dataclass(frozen=True)
class _Part:
    """The work of one operator signature that is of one kind."""

    kind: str
    recomputed: bool
    precision: str
    point: RooflinePoint


def totals(work: Work, machine: Machine, verdicts: Mapping[WorkKey, WorkVerdict]) -> Totals | None:
    """The totals of `work`; None where there is no device work.

    An operator's kernels count together, as its FLOPs do, except communication, which is told by
    the kernel. Where an operator is not known, or unknown, the names of its kernels tell.
    """
    if work.kernels.is_empty():
        return None
    parts = list(_parts(work, machine, verdicts))
    phases = {part.point.phase for part in parts}
    return Totals(
        device_ns=sum(part.point.device_ns for part in parts),
        by_kind=_subtotals((part.kind, part.point) for part in parts),
        by_phase=(
            _subtotals((_phase_of(part), part.point) for part in parts) if phases != {""} else ()
        ),
        by_precision=_subtotals((part.precision, part.point) for part in parts),
    )


def _parts(
    work: Work, machine: Machine, verdicts: Mapping[WorkKey, WorkVerdict]
) -> Iterable[_Part]:
    # Numbers, which are quicker to compare than names of hundreds of characters.
    keys = work.kernels.select(_KIND_KEYS).with_columns(pl.col(pl.String).cast(pl.Categorical))
    coded = keys.unique()
    groups = coded.with_columns(pl.col(pl.Categorical).cast(pl.String))
    told = pl.DataFrame(
        [
            _told(kind, name, None if index is None else work.signatures[index], phase)
            for kind, name, index, phase in groups.iter_rows()
        ],
        schema={"work_kind": pl.String, "named_precision": pl.String},
        orient="row",
    )
    kinds = keys.join(
        pl.concat([coded, told], how="horizontal"),
        on=_KIND_KEYS,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    kernels = pl.concat(
        [work.kernels.select(*OF_POINTS, "recompute"), kinds.drop(_KIND_KEYS)], how="horizontal"
    ).with_columns(
        pl.col("recompute").fill_null(False),
        # Of an operator that computes and communicates the counts are of what it computes.
        uncounted=(pl.col("work_kind") == COMMUNICATION)
        & (pl.col("work_kind") != COMMUNICATION).any().over("signature", "phase")
        & pl.col("signature").is_not_null(),
    )
    grouped = op_points_by(replace(work, kernels=kernels), machine, verdicts, _PART_KEYS)
    for (*_, kind, recomputed, named_precision, uncounted), point in grouped:
        counted = _without_counts(point) if uncounted else point
        precision = precision_of(counted)
        if precision == PRECISION_UNKNOWN:
            precision = named_precision
        yield _Part(kind, recomputed, precision, counted)


def _told(kernel_kind: str, name: str, signature: Signature | None, phase: str) -> tuple[str, str]:
    """The kind of some kernels, and the precision that their name tells where nothing else does."""
    operator = None if signature is None or signature.counted else signature.name
    if operator is not None and signature is not None and signature.cost is not None:
        # The counts of a call are of all its kernels together, so these are of one kind.
        name = operator
    kind = kind_of_work(kernel_kind, name, operator, phase)
    if kind in _WITHOUT_ARITHMETIC:
        return kind, NO_ARITHMETIC
    decoded = decode(name)
    return kind, PRECISION_UNKNOWN if decoded is None else decoded.precision or PRECISION_UNKNOWN


def _without_counts(point: RooflinePoint) -> RooflinePoint:
    return msgspec.structs.replace(
        point, flops=None, bytes_read=None, bytes_written=None, undivided_bytes=None
    )


def _phase_of(part: _Part) -> str:
    marks = (
        part.point.phase or _PHASE_UNKNOWN,
        "recomputed forward" if part.recomputed else "",
        COMMUNICATION if part.kind == COMMUNICATION else "",
    )
    return ", ".join(mark for mark in marks if mark)


def precision_of(point: RooflinePoint) -> str:
    """That of most of its matrix products, else of most of its other operations."""
    if point.flops is None:
        return PRECISION_UNKNOWN
    counted = [part for part in point.flops if part.count]
    if not counted:
        return NO_ARITHMETIC
    return max(counted, key=lambda part: (part.kind == "matmul", part.count)).precision


def _subtotals(named: Iterable[tuple[str, RooflinePoint]]) -> tuple[Subtotal, ...]:
    groups: defaultdict[str, list[RooflinePoint]] = defaultdict(list)
    for name, point in named:
        groups[name].append(point)
    all_ns = sum(point.device_ns for points in groups.values() for point in points)
    found = [_subtotal(name, points, all_ns) for name, points in groups.items()]
    return tuple(sorted(found, key=lambda one: (-one.device_ns, one.name)))


def _subtotal(name: str, points: list[RooflinePoint], all_ns: int) -> Subtotal:
    device_ns = sum(point.device_ns for point in points)
    flops, flops_ns = _known((point.total_flops, point.device_ns) for point in points)
    moved, bytes_ns = _known((point.total_bytes, point.device_ns) for point in points)
    roof_ns, roofed_ns = _known((point.roof_ns, point.device_ns) for point in points)
    return Subtotal(
        name=name,
        device_ns=device_ns,
        device_fraction=device_ns / all_ns if all_ns else 0.0,
        flops=flops,
        bytes_moved=moved,
        flops_ns=flops_ns,
        bytes_ns=bytes_ns,
        roof_ns=roof_ns,
        roofed_ns=roofed_ns,
        roof_fraction=roof_ns / roofed_ns if roof_ns is not None and roofed_ns else None,
    )


def _known(values: Iterable[tuple[int | None, int]]) -> tuple[int | None, int]:
    """The sum of the values that are known, None where none is, and their device time."""
    known = [(value, device_ns) for value, device_ns in values if value is not None]
    total = sum(value for value, _ in known) if known else None
    return total, sum(device_ns for _, device_ns in known)
