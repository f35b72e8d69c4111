"""Which profiled steps stand for a step, and how long each of them was.

A capture has one definition of a step's length, the same for all of its ranks:

- device period: from the end of one step's device work to the end of the next one's. Where the
  device runs behind its host, the host's marks tell when work was queued and not when it ran. In a
  run of gpuprof, which waits for the device before the first of them, a step ends no sooner than
  its host marks it.
- host range: between the host's marks. The device is done with a step when the host is.
- whole trace: nothing marks steps, so all that was recorded is taken as one, from the first to the
  last device work.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.intervals import clipped, union_ns
from gpuprof.roofline.step_figures import StepDefinition
from gpuprof.roofline.work.attribution import launch_of_kernels
from gpuprof.roofline.work.work import Work

# Of a step: device work that ends by so much after its host's mark is behind. A program that waits
# for its device ends some microseconds before or after.
_BEHIND: Final = 0.01


@dataclass(frozen=True)
class Stretch:
    """The profiled steps that figures of one step are means of."""

    definition: StepDefinition
    # Of each of them, in order.
    lengths_ns: tuple[int, ...]
    # Their indices in `steps`; None: all work is of the one step.
    indices: tuple[int, ...] | None = None
    # Where the steps follow each other on the device without a gap: when the first begins and the
    # last ends. What runs in between is theirs, whoever launched it.
    window_ns: tuple[int, int] | None = None
    # When each of them ran, by the clock of its definition; they do not overlap.
    spans_ns: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self.lengths_ns)

    @property
    def mean_ns(self) -> int:
        """The mean length of a step."""
        return round(fmean(self.lengths_ns))

    def work_of(self, work: Work) -> Work:
        """The part of `work` that these steps launched; without steps, all that has a time."""
        if self.indices is None:
            # Counters may be recorded without times, all or some of them.
            return work.where(pl.col("start_ns").is_not_null())
        return replace(work.where(pl.col("step").is_in(self.indices)), steps=self.steps)


def step_ends(capture: Capture) -> pl.DataFrame:
    """When the device of each rank was done with each of its profiled steps.

    Columns rank, index, start_ns, end_ns and host_ns of the step's marks, and done_ns, in the order
    of rank and step. Empty where steps were timed without the profiler: nothing rests on it there.
    """
    steps = capture.steps.filter(pl.col("phase") == "profiled").select(
        "rank", "index", "start_ns", "end_ns", "host_ns"
    )
    timed = (capture.steps["phase"] == "timed").any()
    if timed or steps.is_empty() or capture.launches.is_empty():
        return steps.clear().with_columns(done_ns=pl.lit(None, pl.Int64))
    done = (
        _launched_in(steps, capture).group_by("rank", "index").agg(done_ns=pl.col("end_ns").max())
    )
    return steps.join(done, on=("rank", "index")).sort("rank", "start_ns")


def device_runs_behind(ends: pl.DataFrame) -> bool:
    """Whether the device of any rank ends its steps after the host does, by their `step_ends`.

    Device period and host range differ there. Ranks wait for each other, so one is enough.
    """
    lags = ends.group_by("rank").agg(
        (pl.col("done_ns") - pl.col("end_ns")).median().alias("lag_ns"),
        pl.col("host_ns").median(),
    )
    return bool((lags["lag_ns"] > _BEHIND * lags["host_ns"]).any())


def longest_gap_of_others_ns(capture: Capture, rank: int, ends: pl.DataFrame) -> int:
    """The longest time without device work in one step of any rank of `capture` but `rank`.

    What those ranks' hosts do then they may do sooner without the profiler. Between the ends of
    their first and last step; of ranks with two steps or more.
    """
    longest_ns = 0
    for (other,), steps in ends.filter(pl.col("rank") != rank).group_by("rank"):
        done_ns = steps["done_ns"].to_numpy()
        window_ns = int(done_ns.min()), int(done_ns.max())
        if steps.height < 2:
            continue
        work = capture.kernels.filter((pl.col("rank") == other) & (pl.col("kind") != "op"))
        busy_ns = union_ns(
            *clipped(work["start_ns"].to_numpy(), work["end_ns"].to_numpy(), window_ns)
        )
        gap_ns = (window_ns[1] - window_ns[0] - busy_ns) / (steps.height - 1)
        longest_ns = max(longest_ns, round(gap_ns))
    return longest_ns


def _launched_in(steps: pl.DataFrame, capture: Capture) -> pl.DataFrame:
    """The end of each piece of device work of `steps`, with its rank and their index."""
    on_device = pl.col("kind") != "op"
    if all(info.attributed for info in capture.processes):
        ran = capture.kernels.filter(on_device)
        return ran.select("rank", "end_ns", index="step").drop_nulls()
    launched = (
        pl.concat(
            [capture.kernels, launch_of_kernels(capture)["launch_ns"].to_frame()], how="horizontal"
        )
        .filter(on_device)
        .select("rank", "end_ns", "launch_ns")
        .drop_nulls()
    )
    found = [pl.DataFrame(schema={"rank": pl.Int32, "end_ns": pl.Int64, "index": pl.Int32})]
    work = launched.partition_by("rank", as_dict=True)
    for rank, marks in steps.sort("start_ns").partition_by("rank", as_dict=True).items():
        if rank not in work:
            continue
        times_ns = work[rank]["launch_ns"].to_numpy()
        row = np.searchsorted(marks["start_ns"].to_numpy(), times_ns, side="right") - 1
        inside = (row >= 0) & (times_ns < marks["end_ns"].to_numpy()[row])
        found.append(
            work[rank]
            .select("rank", "end_ns", index=marks["index"].gather(np.maximum(row, 0)))
            .filter(pl.Series(inside))
        )
    return pl.concat(found)


def profiled_stretch(capture: Capture, work: Work, *, behind: bool) -> Stretch | None:
    """The profiled steps of an attributed one-rank capture with this `work`.

    `behind` says whether the device runs behind the host. None where nothing was profiled.
    """
    profiled = capture.steps.filter(pl.col("phase") == "profiled").sort("start_ns")
    timed = capture.steps.filter(pl.col("phase") == "timed")
    kernels = work.kernels
    if profiled.is_empty():
        return _whole_trace(kernels) if timed.is_empty() else None
    ends = (
        kernels.filter(pl.col("kind") != "op")
        .drop_nulls("step")
        .group_by("step")
        .agg(pl.col("end_ns").max())
        .sort("step")
    )
    indices, end_ns = tuple(ends["step"]), np.maximum.accumulate(ends["end_ns"].to_numpy())
    if timed.height and timed["device_ns"].is_not_null().all() and len(indices):
        # The device was idle when the first of them began: gpuprof waits for it before. Where the
        # host goes on with nothing queued, a step ends with it, so that the last one has all of it.
        first_ns = int(profiled["start_ns"][0])
        own = profiled.filter(pl.col("index").is_in(indices))
        return _periods((first_ns, *np.maximum(end_ns, own["end_ns"].to_numpy())), indices)
    if behind and len(indices) > 1:
        window_ns = int(end_ns[0]), int(end_ns[-1])
        return replace(_periods(end_ns, indices[1:]), window_ns=window_ns)
    hosts = tuple(profiled["host_ns"].to_list())
    if behind and len(indices) == 1:
        only = _only_step(capture.kernels, indices, int(profiled["start_ns"][0]), max(hosts))
        if only is not None:
            return only
    marks = tuple(profiled.select("start_ns", "end_ns").iter_rows())
    return Stretch("host range", hosts, tuple(profiled["index"]), spans_ns=marks)


def _only_step(
    kernels: pl.DataFrame, indices: tuple[int, ...], marked_ns: int, host_ns: int
) -> Stretch | None:
    """The period of a single step that the device does later than the host marks it.

    It begins where the work of earlier steps ends, if that reaches into it. Else nothing shows a
    period; but it is not shorter than the step's own device work.
    """
    own = kernels.filter(pl.col("step").is_not_null())
    first_ns, last_ns = (
        int(own["start_ns"].to_numpy().min()),
        int(own["end_ns"].to_numpy().max()),
    )
    earlier = kernels.filter(pl.col("step").is_null() & (pl.col("start_ns") < first_ns))
    reached_ns = int(earlier["end_ns"].to_numpy().max(initial=marked_ns))
    begun_ns = min(first_ns, reached_ns) if reached_ns > marked_ns else first_ns
    if reached_ns > marked_ns or last_ns - begun_ns > host_ns:
        return _periods((begun_ns, last_ns), indices)
    return None


def _whole_trace(kernels: pl.DataFrame) -> Stretch | None:
    # Counters may be recorded without times.
    kernels = kernels.drop_nulls("start_ns")
    if kernels.is_empty():
        return None
    first_ns = int(kernels["start_ns"].to_numpy().min())
    last_ns = int(kernels["end_ns"].to_numpy().max())
    return Stretch("whole trace", (last_ns - first_ns,), spans_ns=((first_ns, last_ns),))


def _periods(times_ns: Iterable[int], indices: tuple[int, ...]) -> Stretch:
    """Steps that each end where the next one begins."""
    spans = tuple(pairwise(map(int, times_ns)))
    lengths = tuple(end - start for start, end in spans)
    return Stretch("device period", lengths, indices, spans_ns=spans)
