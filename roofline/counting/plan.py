"""Which launches a second run is counted for: those of the work that could gain most.

Nsight Compute filters by function name, and takes of each function, grid and block the first so
many launches of its window. The window is a whole step, so they are spread over it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.launch_matching import base_name
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.points.above_roof import shares_above_roof
from gpuprof.roofline.points.points import NO_OP
from gpuprof.roofline.points.process_roofs import device_of
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.math_mode import math_mode
from gpuprof.roofline.work.work import Work, find_work

# Nsight Compute replays each launch 16 times for all counters, with all that it wrote restored in
# between: half a second each on an H200.
MOST_LAUNCHES: Final = 64
# Of the gain there is: more launches than it takes for this are not worth their replays.
_ENOUGH: Final = 0.98
# What ncu tells launches apart by, and counts by: the function without its template arguments.
_CONFIGURATION: Final = (
    "base",
    *(f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz"),
    "shared_memory",
)
_WORK: Final = (*_CONFIGURATION, "name", "signature", "phase")


@dataclass(frozen=True)
class CountersPlan:
    """What Nsight Compute is asked to count."""

    # Kernel names as ncu filters by them: without namespaces, template arguments and parameters.
    kernels: tuple[str, ...]
    # Of each function, grid and block the first so many launches of the window.
    launches_of_each: int
    # Of all of them together.
    launches: int
    # True: the window is one step after the warm-up; False: it begins with the program.
    one_step: bool
    # What the chosen work has of the kernels' device time, and of their time above the roof, in
    # all profiled steps.
    time_fraction: float
    gain_fraction: float


class _ChosenWork(NamedTuple):
    """Launches of one name, grid, block and operator."""

    # Its number among the launches of the function, grid and block, from 0, of the first one.
    first: int
    time_ns: float
    gain_ns: float


@dataclass(frozen=True)
class _Function:
    """The kernels that ncu knows by one name."""

    name: str
    # Launches in the window of each grid and block.
    launches: tuple[int, ...]
    work: tuple[_ChosenWork, ...]

    def cost(self, of_each: int) -> int:
        """Launches that are replayed."""
        return sum(min(of_each, number) for number in self.launches)

    def reached(self, of_each: int) -> list[_ChosenWork]:
        return [one for one in self.work if one.first < of_each]

    def gain(self, of_each: int) -> float:
        return sum(one.gain_ns for one in self.reached(of_each))


def plan_counters(capture: Capture, analysis: Analysis) -> CountersPlan | None:
    """The work with most time above its roof; None where no kernel ran on a GPU.

    `analysis` is that of the first rank of `capture`. Time above the roof is counted over all
    profiled steps; all time of work without a roof counts, as nothing says that it is well spent.
    A function, grid and block that several operators run is counted as often as it takes to meet
    those that are worth it, within at most `MOST_LAUNCHES` launches.
    """
    capture = attribute(capture.rank(analysis.rank))
    process = capture.processes[0]
    work = find_work(capture, math_mode(device_of(process), process))
    kernels = _with_gains(work, analysis)
    if kernels.is_empty():
        return None
    one_step = _has_profiled_steps(capture)
    functions = _functions(kernels, one_step=one_step)
    time_ns, gain_ns = float(kernels["duration_ns"].sum()), float(kernels["gain_ns"].sum())
    choices = list(_choices(functions, gain_ns))
    enough = _ENOUGH * max(gain for gain, *_ in choices)
    _, _, of_each, chosen = min(
        (choice for choice in choices if choice[0] >= enough), key=lambda choice: choice[1:3]
    )
    reached = [one for function in chosen for one in function.reached(of_each)]
    return CountersPlan(
        kernels=tuple(function.name for function in chosen),
        launches_of_each=of_each,
        launches=sum(function.cost(of_each) for function in chosen),
        one_step=one_step,
        time_fraction=_share(sum(one.time_ns for one in reached), time_ns),
        gain_fraction=_share(sum(one.gain_ns for one in reached), gain_ns),
    )


def window_of(capture: Capture, *, one_step: bool) -> pl.Series:
    """Rows of the kernels, of one process, among which ncu counts: those of the first profiled
    step, or all."""
    kernels = attribute(capture).kernels.with_row_index("row")
    if one_step:
        profiled = capture.steps.filter(pl.col("phase") == "profiled")["index"]
        kernels = kernels.filter(pl.col("step") == profiled.min())
    return kernels["row"]


def _choices(
    functions: Sequence[_Function], all_gain_ns: float
) -> Iterable[tuple[float, int, int, list[_Function]]]:
    """Gain, launches, launches of each configuration, and functions, of each way to choose."""
    most = 1 + max(one.first for function in functions for one in function.work)
    for of_each in range(1, min(most, MOST_LAUNCHES) + 1):
        chosen: list[_Function] = []
        gain, launches = 0.0, 0
        for function in sorted(
            functions, key=lambda one: (-one.gain(of_each) / one.cost(of_each), one.name)
        ):
            cost = function.cost(of_each)
            # The first is taken as it is: ncu counts at least something of it.
            if chosen and (gain >= _ENOUGH * all_gain_ns or launches + cost > MOST_LAUNCHES):
                continue
            chosen.append(function)
            gain += function.gain(of_each)
            launches += cost
        yield gain, launches, of_each, chosen


def _with_gains(work: Work, analysis: Analysis) -> pl.DataFrame:
    """Kernels of the profiled steps, with `gain_ns`: their part of their operator's time above its
    roof."""
    shares = shares_above_roof(analysis.ops)
    keys = [
        (NO_OP, "") if signature is None else _name_of(work, signature)
        for signature in work.kernels["signature"]
    ]
    phases = work.kernels["phase"].to_list()
    above = [shares.get((*key, phase), 1.0) for key, phase in zip(keys, phases, strict=True)]
    return (
        work.kernels.with_columns(above=pl.Series(above, dtype=pl.Float64))
        .filter(pl.col("kind") == "kernel")
        .with_columns(gain_ns=pl.col("duration_ns") * pl.col("above"))
    )


def _name_of(work: Work, signature: int) -> tuple[str, str]:
    return work.signatures[signature].name, work.signatures[signature].detail


def _functions(kernels: pl.DataFrame, *, one_step: bool) -> list[_Function]:
    """By the name that ncu filters by, with what of it runs in the window."""
    names = {name: base_name(name) for name in kernels["name"].unique()}
    kernels = kernels.with_columns(base=pl.col("name").replace_strict(names))
    window = kernels
    if one_step:
        window = kernels.filter(pl.col("step") == pl.col("step").min())
    window = window.with_columns(number=pl.int_range(pl.len()).over(_CONFIGURATION))
    configurations = window.group_by(_CONFIGURATION, maintain_order=True).len()
    launches = dict(configurations.group_by("base", maintain_order=True).agg("len").iter_rows())
    # Work that the window does not hold cannot be counted.
    work = (
        window.group_by(_WORK, maintain_order=True)
        .agg(pl.col("number").min())
        .join(
            kernels.group_by(_WORK).agg(pl.col("duration_ns").sum(), pl.col("gain_ns").sum()),
            on=_WORK,
            nulls_equal=True,
            maintain_order="left",
        )
    )
    of_function: dict[str, list[_ChosenWork]] = {}
    columns = ("base", "number", "duration_ns", "gain_ns")
    for base, *figures in work.select(columns).iter_rows():
        of_function.setdefault(base, []).append(_ChosenWork(*figures))
    return [
        _Function(name, tuple(launches[name]), tuple(found)) for name, found in of_function.items()
    ]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _has_profiled_steps(capture: Capture) -> bool:
    """Whether the profile is of steps after the warm-up, not of the program's beginning.

    The first look stands before the warm-up steps, or alone where nothing marked a step.
    """
    phases = capture.steps.sort("index")["phase"]
    return not phases.is_empty() and phases[0] != "profiled" and phases[-1] == "profiled"
