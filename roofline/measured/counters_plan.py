"""Which kernels a second run is counted for, chosen from what the first one took time for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.launch_matching import base_name

_SHARE_OF_TIME: Final = 0.8
_MOST_KERNELS: Final = 8
# Nsight Compute replays each launch several times, with all that it wrote restored in between.
MOST_LAUNCHES: Final = 64


@dataclass(frozen=True)
class CountersPlan:
    """What Nsight Compute is asked to count."""

    # Kernel names as ncu filters by them: without namespaces, template arguments and parameters.
    kernels: tuple[str, ...]
    # Launches of those kernels from the start of the window, and then ncu stops.
    launches: int
    # True: the window is one step after the warm-up; False: it begins with the program.
    one_step: bool


def plan_counters(capture: Capture) -> CountersPlan | None:
    """The kernels with most device time of a one-process capture; None where it ran none.

    They cover 80 % of the time and are at most 8. All their launches in one step are counted, since
    names alone do not tell the shapes that they ran on; a name with many launches is passed over.
    Where that leaves less than half of the time, as with a model of many layers, no name is, and
    counting ends within the step.
    """
    one_step = _has_profiled_steps(capture)
    kernels = capture.kernels.filter(pl.col("kind") == "kernel")
    if one_step:
        kernels = kernels.filter(pl.col("step") == pl.col("step").min())
    if kernels.is_empty():
        return None
    bases = {name: base_name(name) for name in kernels["name"].unique()}
    totals = list(
        kernels.with_columns(pl.col("name").replace_strict(bases).alias("base"))
        .group_by("base")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"), pl.len().alias("launches"))
        .sort("ns", "base", descending=[True, False])
        .iter_rows()
    )
    all_ns = sum(ns for _, ns, _ in totals)
    chosen = _choose(totals, all_ns, most_of_a_name=MOST_LAUNCHES // 3)
    if sum(ns for _, ns, _ in chosen) < all_ns / 2:
        chosen = _choose(totals, all_ns, most_of_a_name=None)
    launches = sum(launches for _, _, launches in chosen)
    return CountersPlan(
        tuple(base for base, _, _ in chosen), min(launches, MOST_LAUNCHES), one_step
    )


# Name, device time and launches of a kernel.
_Total: TypeAlias = tuple[str, int, int]


def _choose(totals: Sequence[_Total], all_ns: int, *, most_of_a_name: int | None) -> list[_Total]:
    """The first of `totals` up to the share of time and number that is wanted."""
    chosen: list[_Total] = []
    covered, launches = 0, 0
    for total in totals:
        if covered >= _SHARE_OF_TIME * all_ns or len(chosen) == _MOST_KERNELS:
            break
        if most_of_a_name is not None:
            if total[2] > most_of_a_name or launches + total[2] > MOST_LAUNCHES:
                continue
        chosen.append(total)
        covered += total[1]
        launches += total[2]
    return chosen


def _has_profiled_steps(capture: Capture) -> bool:
    """Whether the profile is of steps after the warm-up, not of the program's beginning.

    The first look stands before the warm-up steps, or alone where nothing marked a step.
    """
    phases = capture.steps.sort("index")["phase"]
    return not phases.is_empty() and phases[0] != "profiled" and phases[-1] == "profiled"
