"""How much was allocated over time, in as many points as a plot shows, and by profiled step."""

from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.roofline.memory.lifetimes import Lifetimes
from gpuprof.roofline.memory_figures import MemoryTimeline, StepMemory

# Groups of equally many events, each with its least and its most: events come in bursts, which
# spans of equal length would show as one point.
_GROUPS: Final = 250


def timeline(lives: Lifetimes, steps: pl.DataFrame, *, first: int = 0) -> MemoryTimeline:
    """From position `first` on; `steps` are the profiled ones."""
    shown = _extremes(lives, first)
    bounds = [
        (begin, end)
        for begin, end in steps.select("start_ns", "end_ns").iter_rows()
        if end > int(lives.times_ns[first])
    ]
    start_ns = min([int(lives.times_ns[first]), *(begin for begin, _ in bounds)])
    times_ns = lives.times_ns[shown] - start_ns
    # The state before the first event is that of the beginning.
    times_ns[0] = 0
    return MemoryTimeline(
        start_ns=start_ns,
        times_ns=tuple(times_ns.tolist()),
        allocated_bytes=tuple(lives.allocated[shown].tolist()),
        reserved_bytes=tuple(lives.reserved_at(position) for position in shown.tolist()),
        steps_ns=tuple((begin - start_ns, end - start_ns) for begin, end in bounds),
    )


def step_memory(lives: Lifetimes, steps: pl.DataFrame) -> tuple[StepMemory, ...]:
    """The peak of each of the profiled steps, and what was left at its end."""
    found = []
    for number, (begin, end) in enumerate(steps.select("start_ns", "end_ns").iter_rows(), 1):
        first, last = lives.position_at(begin), lives.position_at(end)
        peak = int(lives.allocated[first : last + 1].max())
        found.append(StepMemory(step=number, peak_bytes=peak, end_bytes=int(lives.allocated[last])))
    return tuple(found)


def _extremes(lives: Lifetimes, first: int) -> Integers:
    """The positions to show from `first` on, in order."""
    positions = np.arange(first, len(lives.allocated))
    if len(positions) <= 2 * _GROUPS:
        return positions
    group = np.arange(len(positions)) * _GROUPS // len(positions)
    chosen = (
        pl.DataFrame({"position": positions, "group": group, "bytes": lives.allocated[positions]})
        .group_by("group")
        .agg(
            least=pl.col("position").get(pl.col("bytes").arg_min()),
            most=pl.col("position").get(pl.col("bytes").arg_max()),
        )
    )
    shown: Integers = np.unique(
        np.concatenate([chosen["least"].to_numpy(), chosen["most"].to_numpy(), positions[[0, -1]]])
    )
    return shown
