"""The slow steps of a capture: of all that were watched, else of the timed or profiled ones."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median_low
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.watched_steps import StepBlock, WatchedStep, WatchedSteps
from gpuprof.roofline.analysis import Utilization
from gpuprof.roofline.length_distribution import (
    Counted,
    counted_above,
    outlier_limit_ns,
    percentiles,
    quantile,
)
from gpuprof.roofline.slow_step_figures import (
    CauseTotal,
    Population,
    RunPoint,
    SlowStep,
    SlowSteps,
    StepDifference,
)
from gpuprof.roofline.slow_steps.causes import (
    OrdinaryStep,
    cause_totals,
    differences,
    ordinary_step,
)
from gpuprof.roofline.slow_steps.profiled import differences_of_profiled
from gpuprof.roofline.step_figures import DEVICE_CLOCK, Exposed, StepTimes
from gpuprof.roofline.steps.device_readings import DeviceReadings, device_readings
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.work import Work

# Of timed and of profiled steps.
_MOST_SHOWN: Final = 8
# What the table of steps has of a `WatchedStep`.
_SHARED_COLUMNS: Final = (
    *("index", "start_ns", "host_ns", "device_ns", "device_start_ns"),
    *("run_delay_ns", "garbage_collection_ns", "loader_ns"),
)


def slow_steps(
    capture: Capture,
    work: Work,
    times: StepTimes,
    *,
    stretch: Stretch | None,
    critical: Exposed | None,
    utilization: Utilization | None,
) -> SlowSteps | None:
    """How the steps of a one-rank capture are spread, and what differed in the slowest.

    None for fewer than two steps.
    """
    process = capture.processes[0]
    devices = process.fingerprint.devices
    device = devices[process.device].index if process.device < len(devices) else None
    readings = device_readings(capture.samples, device)
    if process.watched_steps is not None:
        found = _of_watched(process.watched_steps, readings)
    elif times.timed > 1:
        found = _of_timed(capture.steps, times, readings)
    elif stretch is not None and stretch.steps > 1:
        return _of_profiled(capture, work, times, stretch, critical)
    else:
        return None
    return msgspec.structs.replace(found, mfu=_mfu(times, utilization, found.mean_ns))


def _of_watched(watched: WatchedSteps, readings: DeviceReadings) -> SlowSteps:
    median_ns = quantile(watched.histogram, 0.5)
    time_line = tuple(
        _run_point(block, watched.steps_per_mark, readings) for block in watched.time_line
    )
    clocks = [point.sm_clock_mhz for point in time_line if point.sm_clock_mhz is not None]
    usual_mhz = median_low(clocks) if clocks else None
    ordinary = ordinary_step(watched.sample, median_ns, usual_mhz)
    compare = _Comparison(
        ordinary, readings, outlier_limit_ns(watched.histogram), on_device=watched.on_device
    )
    slowest = tuple(compare.slow_step(step) for step in watched.slowest)
    host_ns = fmean(step.host_ns for step in watched.sample)
    found = _spread("watched", watched.histogram, slowest, watched.total_ns / watched.marked)
    return msgspec.structs.replace(
        found,
        clock=DEVICE_CLOCK if watched.on_device else "host clock",
        steps=watched.marked * watched.steps_per_mark,
        steps_per_mark=watched.steps_per_mark,
        # The histogram knows it less exactly.
        longest_ns=slowest[0].length_ns,
        outliers=found.outliers * watched.steps_per_mark,
        outliers_longer_ns=found.outliers_longer_ns * watched.steps_per_mark,
        causes=found.causes if watched.steps_per_mark == 1 else _without_periods(found.causes),
        time_line=time_line,
        watching_fraction=watched.mark_ns / (host_ns * watched.steps_per_mark),
    )


def _of_timed(steps: pl.DataFrame, times: StepTimes, readings: DeviceReadings) -> SlowSteps:
    timed = [_of_row(row) for row in _rows(steps, "timed")]
    on_device = times.clock == DEVICE_CLOCK
    lengths = [_length_ns(step, on_device=on_device) for step in timed]
    counted = _counted(lengths)
    usual_mhz = readings.median_clock_mhz(
        _reached_ns(timed[0]), _reached_ns(timed[-1]) + lengths[-1]
    )
    ordinary = ordinary_step(timed, quantile(counted, 0.5), usual_mhz)
    compare = _Comparison(ordinary, readings, outlier_limit_ns(counted), on_device=on_device)
    slowest = _longest(compare.slow_step(step) for step in timed)
    return msgspec.structs.replace(
        _spread("timed", counted, slowest, fmean(lengths)), clock=times.clock
    )


def _of_profiled(
    capture: Capture, work: Work, times: StepTimes, stretch: Stretch, critical: Exposed | None
) -> SlowSteps:
    lengths = stretch.lengths_ns
    counted = _counted(lengths)
    median_ns, limit_ns = quantile(counted, 0.5), outlier_limit_ns(counted)
    profiled = {step.index: step for step in map(_of_row, _rows(capture.steps, "profiled"))}
    indices = stretch.indices or tuple(profiled)
    device = None if critical is None else critical.device
    slowest = _longest(
        SlowStep(
            index=index,
            start_ns=profiled[index].start_ns,
            length_ns=length_ns,
            longer_ns=max(0, length_ns - median_ns),
            differences=(
                differences_of_profiled(capture, work, stretch, position, device)
                if length_ns > limit_ns
                else ()
            ),
        )
        for position, (index, length_ns) in enumerate(zip(indices, lengths, strict=True))
    )
    return msgspec.structs.replace(
        _spread("profiled", counted, slowest, fmean(lengths)), clock=times.clock
    )


def _spread(
    population: Population, counted: Counted, slowest: tuple[SlowStep, ...], mean_ns: float
) -> SlowSteps:
    """What is the same for all populations, of lengths with their counts."""
    median_ns, limit_ns = quantile(counted, 0.5), outlier_limit_ns(counted)
    above = counted_above(counted, limit_ns)
    return SlowSteps(
        population=population,
        clock="",
        steps=sum(count for _, count in counted),
        mean_ns=round(mean_ns),
        median_ns=median_ns,
        longest_ns=counted[-1][0],
        percentiles=percentiles(counted),
        limit_ns=limit_ns,
        outliers=sum(count for _, count in above),
        outliers_longer_ns=sum((length_ns - median_ns) * count for length_ns, count in above),
        slowest=slowest,
        causes=cause_totals(step for step in slowest if step.length_ns > limit_ns),
    )


def _without_periods(causes: Iterable[CauseTotal]) -> tuple[CauseTotal, ...]:
    """Where steps share a mark, all that are seen are multiples of it apart."""
    return tuple(msgspec.structs.replace(cause, every=None) for cause in causes)


@dataclass(frozen=True)
class _Comparison:
    """Compares steps with the ordinary one. Those up to `limit_ns` have nothing to explain."""

    ordinary: OrdinaryStep
    readings: DeviceReadings
    limit_ns: int
    on_device: bool

    def slow_step(self, step: WatchedStep) -> SlowStep:
        length_ns, reached_ns = _length_ns(step, on_device=self.on_device), _reached_ns(step)
        reading = self.readings.within(reached_ns, reached_ns + length_ns)
        found: tuple[StepDifference, ...] = ()
        if length_ns > self.limit_ns:
            found = differences(step, length_ns, self.ordinary, reading, on_device=self.on_device)
        return SlowStep(
            index=step.index,
            start_ns=reached_ns,
            length_ns=length_ns,
            longer_ns=max(0, length_ns - self.ordinary.length_ns),
            differences=found,
            sm_clock_mhz=reading.sm_clock_mhz,
            power_watts=reading.power_watts,
            slowed_by=reading.slowed_by,
        )


def _run_point(block: StepBlock, steps_per_mark: int, readings: DeviceReadings) -> RunPoint:
    reached_ns = block.start_ns if block.device_start_ns is None else block.device_start_ns
    reading = readings.within(reached_ns, reached_ns + block.total_ns * steps_per_mark)
    return RunPoint(
        index=block.index,
        start_ns=reached_ns,
        steps=block.marked * steps_per_mark,
        mean_ns=round(block.total_ns / block.marked),
        longest_ns=block.longest_ns,
        sm_clock_mhz=reading.sm_clock_mhz,
        power_watts=reading.power_watts,
        slowed_by=reading.slowed_by,
    )


def _mfu(times: StepTimes, use: Utilization | None, mean_ns: int) -> float | None:
    """MFU over all steps; None where the count is not known to be theirs."""
    if use is None or use.mfu is None or use.basis != "timed" or times.unequal or not mean_ns:
        return None
    return use.mfu * use.step_ns / mean_ns


def _rows(steps: pl.DataFrame, phase: str) -> Iterable[dict[str, int | None]]:
    return steps.filter(pl.col("phase") == phase).sort("start_ns").iter_rows(named=True)


def _of_row(row: dict[str, int | None]) -> WatchedStep:
    return msgspec.convert({name: row[name] for name in _SHARED_COLUMNS}, WatchedStep)


def _length_ns(step: WatchedStep, *, on_device: bool) -> int:
    return step.device_ns if on_device and step.device_ns is not None else step.host_ns


def _reached_ns(step: WatchedStep) -> int:
    return step.start_ns if step.device_start_ns is None else step.device_start_ns


def _counted(lengths: Sequence[int]) -> Counted:
    return sorted(Counter(lengths).items())


def _longest(steps: Iterable[SlowStep]) -> tuple[SlowStep, ...]:
    """The slowest of `steps`, without those that are not longer than the median."""
    longer = [step for step in steps if step.longer_ns]
    return tuple(sorted(longer, key=lambda step: -step.length_ns)[:_MOST_SHOWN])
