"""Kernels that take longer while a collective runs beside them.

A collective takes multiprocessors and memory bandwidth from what it overlaps: communication that is
hidden costs time all the same, which no exposed time shows. It is seen where the same kernel ran
both alone and under a collective in the same steps. A kernel always under one shows nothing.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.roofline.analysis import Bottleneck, RooflinePoint
from gpuprof.roofline.durations import duration
from gpuprof.roofline.intervals import Nanoseconds, covered_ns, merged
from gpuprof.roofline.overlap_figures import SlowedByCommunication, SlowedKernel
from gpuprof.roofline.rank_test import rank_test
from gpuprof.roofline.work.work import Work

# Of its time, up to which a launch is alone, and from which it is under a collective.
_ALONE: Final = 0.01
_UNDER: Final = 0.99
# Launches of each kind, and how unlikely their difference is by chance.
_FEWEST: Final = 3
_CHANCE: Final = 0.05
# Of a step: less is not said beside its verdict.
_WORTH_SAYING: Final = 0.01
_LAUNCH: Final = tuple(f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz")
_KEY: Final = ("name", "signature", "phase")
_READ: Final = ("device", "kind", "transfer", "start_ns", "end_ns", "duration_ns", *_KEY, *_LAUNCH)


def slowed_by_communication(work: Work) -> SlowedByCommunication | None:
    """What the kernels of the profiled steps lose; None where no launches can be compared."""
    launches = _with_overlaps(work.kernels)
    found: dict[tuple[object, ...], list[tuple[list[int], list[int]]]] = {}
    groups = launches.group_by(*_KEY, *_LAUNCH, maintain_order=True).agg(
        under=pl.col("duration_ns").filter(pl.col("overlap") >= _UNDER),
        alone=pl.col("duration_ns").filter(pl.col("overlap") <= _ALONE),
    )
    several = pl.min_horizontal(pl.col("under", "alone").list.len()) >= _FEWEST
    for *key, under, alone in groups.filter(several).select(*_KEY, "under", "alone").iter_rows():
        if rank_test(under, alone) <= _CHANCE:
            found.setdefault(tuple(key), []).append((under, alone))
    slowed = [_slowed(key, several, work) for key, several in found.items()]
    kernels = sorted(
        (one for one in slowed if one.lost_ns > 0), key=lambda one: (-one.lost_ns, one.name)
    )
    if not kernels:
        return None
    return SlowedByCommunication(
        lost_ns=sum(one.lost_ns for one in kernels), kernels=tuple(kernels)
    )


def _slowed(
    key: tuple[object, ...], groups: list[tuple[list[int], list[int]]], work: Work
) -> SlowedKernel:
    name, index, phase = key
    signature = work.signatures[index] if isinstance(index, int) else None
    took = sum(sum(under) for under, _ in groups)
    takes_alone = sum(len(under) * float(np.median(alone)) for under, alone in groups)
    return SlowedKernel(
        name=str(name),
        op="" if signature is None else signature.name,
        op_detail="" if signature is None else signature.detail,
        phase=phase,  # type: ignore[arg-type]  # a column of phases
        under=sum(len(under) for under, _ in groups),
        alone=sum(len(alone) for _, alone in groups),
        ratio=took / takes_alone,
        lost_ns=round((took - takes_alone) / work.steps),
    )


def _with_overlaps(kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernels that compute, with overlap: the share of their time in which a collective runs.

    Without those that another computing kernel of their device overlaps, which slows them too.
    """
    parts = []
    # Numbers, which are quicker to compare and to group by than texts.
    kernels = kernels.select(_READ).with_columns(pl.col("name", "phase").cast(pl.Categorical))
    # Most work has no collectives.
    groups = kernels.group_by(pl.col("device").fill_null(-1)) if _has_collectives(kernels) else ()
    for (_,), group in groups:
        collectives = group.filter(pl.col("kind") == "collective")
        computing = group.filter(
            (pl.col("kind") == "kernel")
            & pl.col("transfer").is_null()
            & (pl.col("duration_ns") > 0)
        ).sort("start_ns")
        if collectives.is_empty() or computing.is_empty():
            continue
        start, end = computing["start_ns"].to_numpy(), computing["end_ns"].to_numpy()
        cover = merged(collectives["start_ns"].to_numpy(), collectives["end_ns"].to_numpy())
        covered = covered_ns(cover, end) - covered_ns(cover, start)
        parts.append(
            computing.with_columns(overlap=pl.Series(covered / (end - start))).filter(
                pl.Series(_by_itself(start, end))
            )
        )
    if not parts:
        return kernels.clear().with_columns(overlap=pl.lit(None, pl.Float64))
    return pl.concat(parts)


def _has_collectives(kernels: pl.DataFrame) -> bool:
    return bool((kernels["kind"] == "collective").any())


def _by_itself(start: Nanoseconds, end: Nanoseconds) -> Booleans:
    """Which of the intervals, in order of their starts, overlap no other."""
    reached = np.maximum.accumulate(end)
    after_all = np.append(True, start[1:] >= reached[:-1])
    before_next = np.append(end[:-1] <= start[1:], True)
    free: Booleans = after_all & before_next
    return free


def with_slowdowns(
    kernels: Iterable[RooflinePoint], slowed: SlowedByCommunication | None
) -> tuple[RooflinePoint, ...]:
    """`kernels`, whose evidence says what they lose to communication."""
    found = {} if slowed is None else {_identity(one): one for one in slowed.kernels}
    return tuple(_with_slowdown(point, found.get(_identity(point))) for point in kernels)


def _identity(one: RooflinePoint | SlowedKernel) -> tuple[str, str, str, str]:
    return one.name, one.op, one.op_detail, one.phase


def _with_slowdown(point: RooflinePoint, slowed: SlowedKernel | None) -> RooflinePoint:
    if slowed is None:
        return point
    said = (
        f"{slowed.ratio:.2f} times as long under a collective ({slowed.under} launches, "
        f"{slowed.alone} without), {duration(slowed.lost_ns)} a step"
    )
    evidence = "; ".join(part for part in (point.bottleneck.evidence, said) if part)
    return msgspec.structs.replace(
        point, bottleneck=msgspec.structs.replace(point.bottleneck, evidence=evidence)
    )


def with_slowdown_of_step(
    bottleneck: Bottleneck, slowed: SlowedByCommunication | None, step_ns: int | None
) -> Bottleneck:
    """The verdict on a step with what its kernels lose to communication, where that is much."""
    if slowed is None or not step_ns or slowed.lost_ns < _WORTH_SAYING * step_ns:
        return bottleneck
    share = slowed.lost_ns / step_ns
    said = (
        f"collectives that run beside kernels cost them {duration(slowed.lost_ns)} of it "
        f"({share:.0%} of the step)"
    )
    return msgspec.structs.replace(bottleneck, evidence=f"{bottleneck.evidence}; {said}")
