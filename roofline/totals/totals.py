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
from gpuprof.roofline.points.classify import WorkKey, WorkVerdict
from gpuprof.roofline.points.points import Machine, op_points
from gpuprof.roofline.total_figures import Subtotal, Totals
from gpuprof.roofline.totals.work_kinds import COMMUNICATION, kind_of_work
from gpuprof.roofline.work.work import Work

_KIND_KEYS: Final = ("kind", "signature", "phase")
_PHASE_UNKNOWN: Final = "phase unknown"
NO_ARITHMETIC: Final = "no arithmetic"
PRECISION_UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class _Part:
    """The work of one operator signature that is of one kind."""

    kind: str
    recomputed: bool
    point: RooflinePoint


def totals(work: Work, machine: Machine, verdicts: Mapping[WorkKey, WorkVerdict]) -> Totals | None:
    """The totals of `work`; None where there is no device work.

    An operator's kernels count together, as its FLOPs do, except communication, which is told by
    the kernel. Only a call's largest precision is known to be that of its kernels.
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
        by_precision=_subtotals((precision_of(part.point), part.point) for part in parts),
    )


def _parts(
    work: Work, machine: Machine, verdicts: Mapping[WorkKey, WorkVerdict]
) -> Iterable[_Part]:
    groups = work.kernels.select(*_KIND_KEYS).unique().sort(_KIND_KEYS)
    kinds = [
        kind_of_work(kind, None if index is None else work.signatures[index].name, phase)
        for kind, index, phase in groups.iter_rows()
    ]
    kernels = work.kernels.join(
        groups.with_columns(pl.Series("work_kind", kinds, dtype=pl.String)),
        on=_KIND_KEYS,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    ).with_columns(
        pl.col("recompute").fill_null(False),
        # Of an operator that computes and communicates the counts are of what it computes.
        uncounted=(pl.col("work_kind") == COMMUNICATION)
        & (pl.col("work_kind") != COMMUNICATION).any().over("signature", "phase")
        & pl.col("signature").is_not_null(),
    )
    keys = ("work_kind", "recompute", "uncounted")
    for (kind, recomputed, uncounted), rows in kernels.group_by(keys, maintain_order=True):
        for point in op_points(replace(work, kernels=rows), machine, verdicts):
            counted = _without_counts(point) if uncounted else point
            yield _Part(str(kind), bool(recomputed), counted)


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
