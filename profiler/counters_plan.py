"""Which kernels a second run is counted for, chosen from what the first one took time for."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.launch_matching import base_name

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

    They cover 80 % of the time and are at most 8. A kernel with so many small launches that all
    together would exceed `MOST_LAUNCHES` is passed over for the next one. All their launches in
    one step are counted, since names alone do not tell the shapes that they ran on.
    """
    one_step = _has_profiled_steps(capture)
    kernels = capture.kernels.with_row_index("row").filter(pl.col("kind") == "kernel")
    if one_step:
        kernels = kernels.filter(pl.col("step") == pl.col("step").min())
    if kernels.is_empty():
        return None
    bases = {name: base_name(name) for name in kernels["name"].unique()}
    totals = (
        kernels.with_columns(pl.col("name").replace_strict(bases).alias("base"))
        .group_by("base")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"), pl.len().alias("launches"))
        .sort("ns", "base", descending=[True, False])
    )
    wanted = _SHARE_OF_TIME * int(totals["ns"].sum())
    chosen: list[str] = []
    covered, launches = 0, 0
    for base, ns, count in totals.iter_rows():
        if covered >= wanted or len(chosen) == _MOST_KERNELS:
            break
        if not chosen or launches + count <= MOST_LAUNCHES:
            chosen.append(base)
            covered += ns
            launches += count
    return CountersPlan(tuple(chosen), min(launches, MOST_LAUNCHES), one_step)


def _has_profiled_steps(capture: Capture) -> bool:
    """Whether the profile is of steps after the warm-up, not of the program's beginning.

    The first look stands before the warm-up steps, or alone where nothing marked a step.
    """
    phases = capture.steps.sort("index")["phase"]
    return not phases.is_empty() and phases[0] != "profiled" and phases[-1] == "profiled"
