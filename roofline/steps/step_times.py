"""How long the steps took, and where the time of one step went."""

import math
from collections import Counter

import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import LaterSteps
from gpuprof.roofline.analysis import (
    DEVICE_CLOCK,
    RooflinePoint,
    SplitPart,
    StepSplit,
    StepTimes,
)
from gpuprof.roofline.classes import (
    AT_ROOF,
    LAUNCH,
    OUTSIDE,
    UNKNOWN,
    ClassName,
    bottleneck_class,
    classes,
)
from gpuprof.roofline.intervals import union_ns
from gpuprof.roofline.steps.settling import later_median_ns
from gpuprof.roofline.work.work import Work

# Device work in profiled steps may exceed the timed step by so much before it counts as other
# work: its length was seen to differ by 1 % between steps with and without a profiler.
_BUSY_TOLERANCE = 1.02


def step_times(capture: Capture) -> StepTimes:
    """Step times of a one-rank capture, from the steps that ran without a profiler.

    Where there are none, the profiled ones are shown and `clock` says so.
    """
    phases = {
        phase: capture.steps.filter(pl.col("phase") == phase)
        for phase in ("warmup", "timed", "profiled")
    }
    timed, profiled = phases["timed"], phases["profiled"]
    on_device = timed.height > 0 and timed["device_ns"].is_not_null().all()
    samples = timed["device_ns" if on_device else "host_ns"].drop_nulls()
    clock = DEVICE_CLOCK if on_device else "host clock"
    if timed.is_empty():
        samples, clock = profiled["host_ns"].drop_nulls(), "host clock under the profiler"
    median_ns = _median(samples)
    host_median_ns = _median(timed["host_ns"])
    # Device against device, or host against host: a host that runs ahead shows nothing.
    profiled_lengths = _device_step_ns(capture, profiled) if on_device else profiled["host_ns"]
    profiled_median_ns = _median(profiled_lengths)
    later = capture.processes[0].later_steps
    return StepTimes(
        found_by=capture.processes[0].steps_found_by or "nothing in the trace marks steps",
        warmup=phases["warmup"].height,
        timed=timed.height,
        profiled=profiled.height,
        clock=clock,
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
        later=0 if later is None else later.block_steps * len(later.blocks_ns),
        later_median_ns=None if later is None else later_median_ns(later),
        later_clock=_later_clock(later),
        launches_per_step=_launches_per_step(capture, profiled),
        tokens_per_s=_tokens_per_s(timed, "device_ns" if on_device else "host_ns"),
    )


def busy_ns_per_step(work: Work) -> int:
    """Time of one profiled step in which at least one piece of device work ran."""
    kernels = work.kernels
    return round(
        union_ns(kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()) / work.steps
    )


def split_step(
    times: StepTimes, points: tuple[RooflinePoint, ...], busy_ns: int, *, steps: int, on_cpu: bool
) -> StepSplit | None:
    """One step's time as time at the roof, below it by class, unmodelled, and waiting.

    Device work keeps its length under the profiler on a GPU, so it is set against the unprofiled
    step time; a CPU's operators are stretched themselves, so there all comes from profiled steps.
    Where work overlaps on several streams, each part shrinks by the overlap in proportion.
    """
    timed_ns = times.median_ns if times.timed and not on_cpu else None
    fits = timed_ns is not None and busy_ns <= timed_ns * _BUSY_TOLERANCE
    basis_is_timed = fits and not times.unequal
    # The device work is a mean over the profiled steps, and so is what it is set against.
    step_ns = timed_ns if basis_is_timed else times.profiled_mean_ns
    if step_ns is None or not points:
        return None
    busy_ns = min(busy_ns, step_ns)
    total_ns = sum(point.device_ns for point in points) / steps
    scale = busy_ns / total_ns / steps if total_ns else 0.0
    lost = Counter[ClassName]()
    for point in points:
        kind, lost_ns = _lost(point)
        lost[kind] += lost_ns
    idle = OUTSIDE if on_cpu else LAUNCH
    spent = {kind: math.floor(lost[kind] * scale) for kind, row in classes().items() if row.loss}
    spent[AT_ROOF] = busy_ns - sum(spent.values())
    spent[idle] = step_ns - busy_ns
    return StepSplit(
        step_ns=step_ns,
        basis="timed" if basis_is_timed else "profiled",
        parts=tuple(
            SplitPart(kind, spent[kind])
            for kind, row in classes().items()
            if kind == idle or not row.idle
        ),
    )


def _lost(point: RooflinePoint) -> tuple[ClassName, int]:
    """The class that `point` loses time to, and how much of its device time."""
    kind = point.bottleneck.kind
    if not bottleneck_class(kind).has_roof:
        return kind, point.device_ns
    if point.roof_ns is None:
        return UNKNOWN, point.device_ns
    return kind, max(0, point.device_ns - point.roof_ns)


def _device_step_ns(capture: Capture, profiled: pl.DataFrame) -> pl.Series:
    """For each profiled step the time from the end of its predecessor's device work to its own.

    The first one begins at its host's start: the device was idle then.
    """
    ends = (
        capture.kernels.drop_nulls("step")
        .group_by("step")
        .agg(pl.col("end_ns").max())
        .sort("step")["end_ns"]
    )
    starts = pl.concat([profiled["start_ns"].head(min(1, ends.len())), ends.head(-1)])
    return pl.Series("device_step_ns", ends.to_numpy() - starts.to_numpy())


def _launches_per_step(capture: Capture, profiled: pl.DataFrame) -> float | None:
    if capture.launches.is_empty() or profiled.is_empty():
        return None
    kernels = capture.kernels.filter(pl.col("step").is_not_null())
    launched = kernels.select("process", "correlation").drop_nulls().unique().height
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


def _later_clock(later: LaterSteps | None) -> str:
    if later is None:
        return ""
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
