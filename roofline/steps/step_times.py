"""How long the steps took."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import LaterSteps, ProcessInfo
from gpuprof.collectors.watched_steps import WatchedSteps
from gpuprof.roofline.length_distribution import quantile
from gpuprof.roofline.step_figures import DEVICE_CLOCK, StepTimes
from gpuprof.roofline.steps.settling import later_median_ns
from gpuprof.roofline.steps.step_content import step_content
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.steps.waiting_for_a_core import waiting_fraction

_CLOCK_OF_PROFILED = {
    "device period": "the device's clock under the profiler",
    "host range": "host clock under the profiler",
    "whole trace": "the device's clock under the profiler",
}


def step_times(capture: Capture, stretch: Stretch | None) -> StepTimes:
    """Step times of a one-rank capture, from the steps that ran without a profiler.

    Where there are none they are those of `stretch`, its profiled ones.
    """
    phases = {
        phase: capture.steps.filter(pl.col("phase") == phase)
        for phase in ("warmup", "timed", "profiled")
    }
    timed, profiled = phases["timed"], phases["profiled"]
    on_device = timed.height > 0 and timed["device_ns"].is_not_null().all()
    samples = timed["device_ns" if on_device else "host_ns"].drop_nulls()
    clock = DEVICE_CLOCK if on_device else "host clock"
    profiled_lengths = pl.Series(() if stretch is None else stretch.lengths_ns, dtype=pl.Int64)
    if timed.is_empty():
        samples = profiled_lengths
        clock = _CLOCK_OF_PROFILED["host range" if stretch is None else stretch.definition]
    median_ns = _median(samples)
    host_median_ns = _median(timed["host_ns"])
    profiled_median_ns = _median(profiled_lengths)
    profiled_definition = None if stretch is None else stretch.definition
    later = _later_steps(capture.processes[0])
    return StepTimes(
        found_by=capture.processes[0].steps_found_by or "nothing in the trace marks steps",
        content=step_content(capture),
        warmup=phases["warmup"].height,
        timed=timed.height,
        profiled=profiled.height,
        clock=clock,
        definition="timed" if timed.height else profiled_definition,
        median_ns=median_ns,
        minimum_ns=_int(samples.min()),
        maximum_ns=_int(samples.max()),
        relative_spread=_relative_spread(samples, median_ns),
        host_median_ns=host_median_ns,
        samples_ns=tuple(samples.to_list()),
        profiled_median_ns=profiled_median_ns,
        profiled_mean_ns=_mean(profiled_lengths),
        profiler_stretch=(
            profiled_median_ns / median_ns - 1
            if profiled_median_ns is not None and median_ns and timed.height
            else None
        ),
        later=later.steps,
        later_median_ns=later.median_ns,
        later_clock=later.clock,
        launches_per_step=_launches_per_step(capture, profiled),
        tokens_per_s=_tokens_per_s(timed, "device_ns" if on_device else "host_ns"),
        waiting_fraction=waiting_fraction(timed),
        profiled_waiting_fraction=waiting_fraction(profiled),
    )


def _launches_per_step(capture: Capture, profiled: pl.DataFrame) -> float | None:
    if capture.launches.is_empty() or profiled.is_empty():
        return None
    kernels = capture.kernels.select("process", "correlation", "step")
    launched = kernels.drop_nulls().select("process", "correlation").unique().height
    return launched / profiled.height


def _tokens_per_s(timed: pl.DataFrame, lengths: str) -> float | None:
    """Tokens over time of the same steps: of a median step where all have as many, else of all."""
    declared = timed.select("tokens", lengths).drop_nulls()
    total_ns = int(declared[lengths].sum())
    if not total_ns:
        return None
    if declared["tokens"].n_unique() == 1:
        median_ns = _median(declared[lengths])
        return float(declared["tokens"][0]) / median_ns * 1e9 if median_ns else None
    return float(declared["tokens"].sum()) / total_ns * 1e9


@dataclass(frozen=True)
class _LaterSteps:
    steps: int = 0
    median_ns: int | None = None
    clock: str = ""


def _later_steps(process: ProcessInfo) -> _LaterSteps:
    """The steps after the profiled ones, by whatever watched them."""
    watched, later = process.watched_steps, process.later_steps
    if watched is not None:
        steps = watched.marked * watched.steps_per_mark
        return _LaterSteps(steps, quantile(watched.histogram, 0.5), _clock(watched))
    if later is not None:
        steps = later.block_steps * len(later.blocks_ns)
        return _LaterSteps(steps, later_median_ns(later), _clock(later))
    return _LaterSteps()


def _clock(later: LaterSteps | WatchedSteps) -> str:
    return DEVICE_CLOCK if later.on_device else "host clock"


def _mean(values: pl.Series) -> int | None:
    return None if values.is_empty() else round(float(np.mean(values.to_numpy())))


def _median(values: pl.Series) -> int | None:
    return None if values.is_empty() else round(float(np.median(values.to_numpy())))


def _relative_spread(values: pl.Series, median_ns: int | None) -> float | None:
    if values.len() < 2 or not median_ns:
        return None
    lower, upper = np.percentile(values.to_numpy(), [25, 75])
    return float(upper - lower) / median_ns


def _int(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None
