"""Answers of the gate's actions, its baselines and its history."""

from collections.abc import Mapping, Sequence

import msgspec

from gpuprof.reports.json_answers.cannot_answer import CannotAnswer
from gpuprof.roofline.gate.history import ChangePoint, HistorySeries
from gpuprof.roofline.gate.planning import BenchmarkPlan
from gpuprof.roofline.gate.series import MetricKey, NoiseCalibration


class StoredBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """One baseline."""

    name: str
    pinned: bool
    created_ns: int
    commit: str | None
    devices: tuple[str, ...]
    processes: int
    # Who accepted its level last, and why; None where nobody did.
    blessed_by: str | None = None
    blessed_because: str = ""


class Baselines(msgspec.Struct, frozen=True):
    """Those of a folder, the oldest first, after what was done."""

    folder: str
    baselines: tuple[StoredBaseline, ...]


class HistoryAddition(msgspec.Struct, frozen=True):
    """What was stored of one gate."""

    gate: str
    added: int
    # Rows that were there already.
    known: int


class HistoryAdditions(msgspec.Struct, frozen=True):
    """What was stored of each gate."""

    gates: tuple[HistoryAddition, ...]


class HistoryLevel(msgspec.Struct, frozen=True):
    """A series, and where its level changed."""

    series: HistorySeries
    change_points: tuple[ChangePoint, ...] = ()


class HistoryLevels(msgspec.Struct, frozen=True, kw_only=True):
    """Every series that was asked for."""

    levels: tuple[HistoryLevel, ...]
    # Of change points alone; None where they were looked for.
    cannot_answer: CannotAnswer | None = None


def history_levels(
    series: Sequence[HistorySeries],
    changes: Sequence[tuple[ChangePoint, ...]] | None,
    remark: str,
) -> HistoryLevels:
    """All `series` with their change points; `remark` says why these were not looked for."""
    found = changes or [()] * len(series)
    levels = tuple(HistoryLevel(*each) for each in zip(series, found, strict=True))
    why, _, remedy = remark.partition(": ")
    return HistoryLevels(
        levels=levels, cannot_answer=CannotAnswer(why, remedy) if changes is None else None
    )


class GateDryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate would run, and what it would stumble over."""

    # As a shell takes them.
    commands: tuple[str, ...]
    # With these it would end without a verdict.
    problems: tuple[str, ...]
    # With these it would run, and perhaps not as somebody meant.
    remarks: tuple[str, ...]


class BenchmarkNoise(msgspec.Struct, frozen=True):
    """What is known of the noise of one metric of one benchmark."""

    benchmark: str
    metric: str
    noise: NoiseCalibration


class GateNoise(msgspec.Struct, frozen=True, kw_only=True):
    """The noise of all targets, this session's included."""

    benchmarks: tuple[BenchmarkNoise, ...]
    # The folder where it was kept; None where that cannot be written.
    kept: str | None
    warnings: tuple[str, ...] = ()


def gate_noise(
    known: Sequence[Mapping[MetricKey, NoiseCalibration]],
    kept: str | None,
    warnings: tuple[str, ...],
) -> GateNoise:
    """What is known of each target's benchmarks, in one list."""
    benchmarks = tuple(
        BenchmarkNoise(benchmark, metric, noise)
        for each in known
        for (benchmark, metric), noise in each.items()
    )
    return GateNoise(benchmarks=benchmarks, kept=kept, warnings=warnings)


class GatePlans(msgspec.Struct, frozen=True, kw_only=True):
    """How many pairs it takes to find a change."""

    # A fraction, and the probability of finding it.
    effect: float
    power: float
    benchmarks: tuple[BenchmarkPlan, ...]
    remarks: tuple[str, ...]
