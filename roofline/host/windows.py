"""The time that figures of the host are of: the profiled steps, or all that was recorded."""

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.capture import Capture, once_a_capture
from gpuprof.roofline.intervals import Nanoseconds, begun_by, covered_ns, merged

Windows = tuple[Nanoseconds, Nanoseconds]


@once_a_capture
def step_windows(capture: Capture) -> Windows | None:
    """The profiled steps of a one-rank capture as intervals that do not touch; None without any."""
    steps = capture.steps.filter(pl.col("phase") == "profiled")
    if steps.is_empty():
        return None
    return merged(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())


def begun_within(windows: Windows | None, start_ns: Nanoseconds) -> Booleans:
    """Which of the times lie in one of the windows."""
    if windows is None:
        return np.ones(len(start_ns), np.bool_)
    opened, closed = windows
    before = begun_by(opened, start_ns) - 1
    inside: Booleans = (before >= 0) & (start_ns < closed[before])
    return inside


def union_within_ns(windows: Windows, start_ns: Nanoseconds, end_ns: Nanoseconds) -> int:
    """Nanoseconds of the windows that at least one of the intervals covers."""
    if not len(start_ns):
        return 0
    first, last = merged(start_ns, end_ns)
    return int((covered_ns(windows, last) - covered_ns(windows, first)).sum())


def length_ns(windows: Windows) -> int:
    """Nanoseconds of all windows together."""
    opened, closed = windows
    return int((closed - opened).sum())
