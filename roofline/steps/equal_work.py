"""Whether timed and profiled steps did the same work, so that one may be divided by the other.

FLOPs and bytes are counted in profiled steps, times are taken from others that ran without the
profiler. Where steps differ in work (sequences of other lengths, a loss scaler that skips updates,
an optimizer that evaluates its closure more often), such a ratio is of no step at all.
"""

from collections.abc import Sequence

import polars as pl

from gpuprof.roofline.durations import duration
from gpuprof.roofline.row_groups import row_groups
from gpuprof.roofline.step_figures import DEVICE_CLOCK, StepTimes
from gpuprof.roofline.work.work import Work

# FLOPs of steps that do the same vary by less: caches that grow by a token, rounded batches.
_SAME = 0.02
# Device work keeps its length under the profiler within 1 % at the same clock. Where the clocks
# are not known, a GPU may have come down to its power limit between the two.
_SAME_LENGTH = 0.98
_LOWEST_CLOCK = 0.75
_OF_A_CALL = ("step", "owner_id")


def unequal_work(
    work: Work,
    times: StepTimes,
    steps: pl.DataFrame,
    *,
    busy_ns: int,
    clock_ratio: float | None,
) -> str | None:
    """Why the profiled steps' work is not that of the timed ones; None where nothing says so.

    `busy_ns` is the time of one profiled step with any device work, `steps` the capture's table,
    `clock_ratio` the device's clock in the profiled steps over that in the timed ones.
    """
    flops = flops_by_step(work)
    if flops and max(flops) > (1 + _SAME) * min(flops):
        return f"the profiled steps do {_flop(min(flops))} to {_flop(max(flops))} each"
    if not times.timed or not times.median_ns:
        return None
    timed, profiled = (_mean_tokens(steps, phase) for phase in ("timed", "profiled"))
    if timed and profiled and abs(profiled / timed - 1) > _SAME:
        return f"a timed step has {timed:.6g} tokens, a profiled one {profiled:.6g}"
    allowed = _LOWEST_CLOCK if clock_ratio is None else _SAME_LENGTH * min(clock_ratio, 1.0)
    if times.clock == DEVICE_CLOCK and times.median_ns < busy_ns * allowed:
        return (
            f"the device works for {duration(busy_ns, 4)} in a profiled step, longer than a timed "
            f"one takes ({duration(times.median_ns, 4)})"
        )
    return None


def _flop(count: int) -> str:
    return f"{count:.3g} FLOP"


def flops_by_step(work: Work) -> Sequence[int]:
    """Known FLOPs of each profiled step that launched work with a cost."""
    rows = work.kernels.select("step", "signature", "owner_id").drop_nulls()
    # A call of a step once: its kernels have one signature.
    order, begins = row_groups(*(rows[name].cast(pl.Int64).to_numpy() for name in _OF_A_CALL))
    calls = rows[order[begins]].group_by("step", "signature").len()
    totals: dict[int, int] = {}
    flops = [
        0 if each.cost is None else sum(part.count for part in each.cost.flops or ())
        for each in work.signatures
    ]
    for step, signature, count in calls.iter_rows():
        totals[step] = totals.get(step, 0) + count * flops[signature]
    return [totals[step] for step in sorted(totals)]


def _mean_tokens(steps: pl.DataFrame, phase: str) -> float | None:
    tokens = steps.filter(pl.col("phase") == phase)["tokens"].drop_nulls()
    return None if tokens.is_empty() else float(tokens.to_numpy().mean())
