"""What differed in the slowest profiled step, by its device work and its host's calls.

Traces of other tools have no other steps. Each figure is compared with its median over the steps.
"""

from collections.abc import Sequence
from statistics import median
from typing import Final

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.durations import duration
from gpuprof.roofline.intervals import union_ns
from gpuprof.roofline.slow_step_figures import StepDifference
from gpuprof.roofline.slow_steps.causes import DEVICE_WORK, HOST
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.work import Work

LINKS: Final = "exposed communication and copies"


def differences_of_profiled(
    capture: Capture, work: Work, stretch: Stretch, position: int, device: int | None
) -> tuple[StepDifference, ...]:
    """Why the step at `position` of `stretch` was longer than the median one.

    In parts of the step: computing on `device`, communication and copies that it does not hide, and
    time without device work. Nothing where the steps' work cannot be told apart.
    """
    indices = stretch.indices
    if indices is None or len(indices) < 2:
        return ()
    own = work.kernels.filter(pl.col("device").eq_missing(pl.lit(device, pl.Int32)))
    per_step = [own.filter(pl.col("step") == index) for index in indices]
    crosses = (pl.col("kind") == "collective") | pl.col("over_link")
    computing = [_covered_ns(kernels.filter(~crosses)) for kernels in per_step]
    busy = [_covered_ns(kernels) for kernels in per_step]
    links = [all_ns - part_ns for all_ns, part_ns in zip(busy, computing, strict=True)]
    idle = [max(0, ns - part) for ns, part in zip(stretch.lengths_ns, busy, strict=True)]
    longer_ns = stretch.lengths_ns[position] - round(median(stretch.lengths_ns))
    found = []
    for cause, values, rows in (
        (DEVICE_WORK, computing, own.filter(~crosses)),
        (LINKS, links, own.filter(crosses)),
        (HOST, idle, _host_calls(capture, indices)),
    ):
        more_ns = min(longer_ns, values[position] - round(median(values)))
        if more_ns > 0:
            found.append(StepDifference(cause, more_ns, _largest_growth(rows, indices, position)))
            longer_ns -= more_ns
    return tuple(sorted(found, key=lambda part: -part.longer_ns))


def _host_calls(capture: Capture, indices: Sequence[int]) -> pl.DataFrame:
    """Runtime calls and ranges of the host that began in each step."""
    steps = capture.steps.filter(pl.col("index").is_in(indices)).sort("start_ns")
    calls = pl.concat(
        [
            table.select("name", "start_ns", "end_ns").drop_nulls()
            for table in (capture.launches, capture.ranges)
        ]
    ).sort("start_ns")
    marks = steps.select("start_ns", step="index", until_ns="end_ns")
    begun = calls.join_asof(marks, on="start_ns")
    return begun.filter(pl.col("start_ns") < pl.col("until_ns"))


def _largest_growth(rows: pl.DataFrame, indices: Sequence[int], position: int) -> str:
    """The name that took most more time in one step than in the median one, with both times."""
    times = (
        rows.group_by("name", "step")
        .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum(), calls=pl.len())
        .filter(pl.col("step").is_in(indices))
    )
    slow = times.filter(pl.col("step") == indices[position])
    largest_ns, said = 0, ""
    for name, _, ns, calls in slow.iter_rows():
        # A step without the name had none of it.
        others = times.filter(pl.col("name") == name)["ns"].to_list()
        usual_ns = round(median(others + [0] * (len(indices) - len(others))))
        if ns - usual_ns > largest_ns:
            largest_ns = ns - usual_ns
            said = f"{name}: {duration(ns)} in {calls} calls, ordinarily {duration(usual_ns)}"
    return said


def _covered_ns(kernels: pl.DataFrame) -> int:
    return union_ns(kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy())
