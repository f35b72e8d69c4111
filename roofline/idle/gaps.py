"""When no device of the process has work, and what the host did to end that.

A gap ends where a piece of device work begins. Between the launch of that and its beginning lies
the latency of a launch, for which the device waits once: what the host does from launch to launch
decides how long a gap is. So a gap is looked at in the host's time, ending with the launch. Work
that was launched longer ago than a launch takes was queued: what it waited for is the device's.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, Integers
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.intervals import covered_ns, merged
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.work import Work

# Of the median latency: what still is that of a launch. Where most launches that found the device
# idle were seen, 99 % of them took under twice the median.
_LATENCY_LIMIT: Final = 2
# Where too few were seen: 1 to 2.5 us on an H100 and an H200.
_USUAL_LATENCY_NS: Final = 5_000
_FEWEST: Final = 5
_OF_GAPS: Final = ("kernel_row", "start_ns", "end_ns", "op_id", "name", "mergeable")


@dataclass(frozen=True)
class Gaps:
    """Times without device work, in order: one entry a gap in every array. Times in ns."""

    start_ns: Integers
    end_ns: Integers
    # From when on the work that ends the gap was queued: gap before it is the host's.
    queued_ns: Integers
    # What the device's time is later than the host's that decides it, up to `queued_ns`.
    shift_ns: Integers
    # The row of `kernels` that ends the gap, -1 for none, and the row of its launch, -1 if unknown.
    kernel: Integers
    launch: Integers

    @property
    def host_start_ns(self) -> Integers:
        """From when on the host decides on the gap."""
        return self.start_ns - self.shift_ns

    @property
    def host_end_ns(self) -> Integers:
        """Until when the host decides on the gap."""
        return self.queued_ns - self.shift_ns


def work_of_stretch(work: Work, stretch: Stretch) -> pl.DataFrame:
    """The device work that the steps of `stretch` are busy with, in order of start.

    Of its columns only those that tell of gaps: all of them would be as large as the work again.
    """
    found = work if stretch.window_ns is not None else stretch.work_of(work)
    return found.kernels.select(_OF_GAPS).sort("start_ns", maintain_order=True)


def find_gaps(
    kernels: pl.DataFrame, launches: Integers, capture: Capture, stretch: Stretch
) -> Gaps:
    """The gaps of `kernels`, in order of start, that reach into the steps of `stretch`.

    `launches` are their rows of launches. A gap is as long as it is, also beyond a step.
    """
    starts, ends = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    busy_start, busy_end = merged(starts, ends)
    first_ns, last_ns = stretch.spans_ns[0][0], stretch.spans_ns[-1][1]
    start = np.concatenate([[min(first_ns, *busy_start[:1])], busy_end]).astype(np.int64)
    end = np.concatenate([busy_start, [max(last_ns, *busy_end[-1:])]]).astype(np.int64)
    spans = merged(*np.array(stretch.spans_ns, np.int64).T)
    inside = (end > start) & (covered_ns(spans, end) > covered_ns(spans, start))
    # What ends a gap is the first to begin where busy time does; nothing ends the last one.
    kernel = np.append(np.searchsorted(starts, busy_start), NONE)[inside]
    start, end = start[inside], end[inside]
    launch = np.where(kernel == NONE, NONE, launches[kernel]) if len(launches) else kernel
    known = launch != NONE
    called, returned = end.copy(), end.copy()
    called[known] = capture.launches["start_ns"].to_numpy()[launch[known]]
    returned[known] = capture.launches["end_ns"].to_numpy()[launch[known]]
    returned = np.minimum(returned, end)
    latency = end - returned
    allowed = _allowed_latency(latency[known & (called > start)])
    queued = end - np.clip(latency - allowed, 0, end - start)
    shift = np.where(queued > start, queued - returned, 0)
    return Gaps(start, end, queued, shift, kernel, launch)


def _allowed_latency(latencies_ns: Integers) -> int:
    """How long a launch may take to reach an idle device, by those that did."""
    if len(latencies_ns) < _FEWEST:
        return _USUAL_LATENCY_NS
    return max(_LATENCY_LIMIT * int(np.median(latencies_ns)), 1)
