"""The windows of a device's counters as a time line: activity, rates, clock and power beside steps.

A step that is shorter than a window shares it with others; a window says which steps it holds.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from gpuprof.roofline.activity_figures import ActivityWindow
from gpuprof.roofline.measured.windows import LATE_NS, activity_fields
from gpuprof.roofline.steps.device_readings import DeviceReadings

# In an analysis; of longer runs windows that follow each other are taken together.
_MOST_WINDOWS: Final = 120


def time_line(
    windows: pl.DataFrame,
    steps: Sequence[int],
    spans: Sequence[tuple[int, int]],
    readings: DeviceReadings,
) -> tuple[ActivityWindow, ...]:
    """`windows` in order of time, each with those of `steps`, which took `spans`, that it holds."""
    together = -(-windows.height // _MOST_WINDOWS)
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
    found = []
    for first in range(0, windows.height, max(together, 1)):
        part = windows.slice(first, together)
        start_ns, end_ns = int(part["start_ns"][0]), int(part["end_ns"][-1])
        # The counters may have been that old already.
        held = np.flatnonzero((ends > start_ns - LATE_NS) & (starts < end_ns))
        reading = readings.within(start_ns, end_ns)
        found.append(
            ActivityWindow(
                start_ns=start_ns,
                end_ns=end_ns,
                first_step=steps[int(held[0])],
                last_step=steps[int(held[-1])],
                sm_clock_mhz=reading.sm_clock_mhz,
                power_watts=reading.power_watts,
                slowed_by=reading.slowed_by,
                **activity_fields(part),
            )
        )
    return tuple(found)
