"""NVML's samples and the device's counters joined to the timed steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.live.nvml.gpm import REFRESH_NS
from gpuprof.roofline.measured.windows import LATE_NS, activity_fields, windows_of, within
from gpuprof.roofline.reading_figures import StepReading
from gpuprof.roofline.steps.device_readings import DeviceReading, DeviceReadings
from gpuprof.roofline.steps.device_state import working_times


@dataclass(frozen=True)
class _Step:
    index: int
    start_ns: int
    end_ns: int
    reading: DeviceReading
    # By the names of `StepReading`; empty where no window lies in the step.
    counted: dict[str, float | None]


def step_readings(
    capture: Capture, readings: DeviceReadings, device: int | None
) -> tuple[StepReading, ...]:
    """The timed steps of a one-rank capture in order of time; () where nothing was sampled."""
    if device is None or not len(readings.time_ns):
        return ()
    timed = capture.steps.filter(pl.col("phase") == "timed").sort("start_ns")
    windows = windows_of(capture.samples.filter(pl.col("device") == device))
    steps = [
        _Step(
            index,
            start_ns,
            end_ns,
            readings.within(start_ns, end_ns),
            _counted(windows, start_ns, end_ns),
        )
        for index, (start_ns, end_ns) in zip(timed["index"], working_times(timed), strict=True)
    ]
    return tuple(found for found in _together(steps) if _tells(found))


def _counted(windows: pl.DataFrame, start_ns: int, end_ns: int) -> dict[str, float | None]:
    if end_ns - start_ns < LATE_NS + REFRESH_NS:
        return {}
    inside = windows.filter((pl.col("start_ns") >= start_ns) & (pl.col("end_ns") <= end_ns))
    inside = within(inside, [(start_ns, end_ns)])
    if inside.is_empty():
        return {}
    return activity_fields(inside)


def _together(steps: list[_Step]) -> Iterator[StepReading]:
    """Steps that follow each other with the same readings as one row; those with windows alone."""

    def alike(step: _Step) -> Any:
        return step.reading, step.index if step.counted else None

    for _, group in groupby(steps, alike):
        members = list(group)
        reading = members[0].reading
        yield StepReading(
            first_step=members[0].index,
            last_step=members[-1].index,
            start_ns=members[0].start_ns,
            mean_ns=round(sum(each.end_ns - each.start_ns for each in members) / len(members)),
            sm_clock_mhz=reading.sm_clock_mhz,
            power_watts=reading.power_watts,
            slowed_by=reading.slowed_by,
            **members[0].counted,
        )


def _tells(found: StepReading) -> bool:
    return found.sm_clock_mhz is not None or found.power_watts is not None
