"""How many pairs a change of a given size needs, and how long they take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuprof.roofline.gate.rule import RuleSettings, plan_pairs
from gpuprof.roofline.gate.series import TIME, MetricKey, NoiseCalibration


@dataclass(frozen=True)
class TargetNoise:
    """What is known of the noise of one target on this machine."""

    target: str
    calibrations: Mapping[MetricKey, NoiseCalibration]
    # Of one process, in the median.
    process_seconds: float
    # What it is known from: how many sessions, on which devices, and when the last one was.
    sessions: int
    devices: tuple[str, ...]
    latest_ns: int


@dataclass(frozen=True)
class BenchmarkPlan:
    """What the time of one benchmark needs."""

    benchmark: str
    target: str
    # Of one pair's log difference, with its degrees of freedom.
    pair_sd: float
    degrees: int
    rebuild_sd: float | None
    # None where no number of pairs is enough.
    pairs: int | None
    # Of these pairs; a target's benchmarks share its processes.
    seconds: float | None


def plan(
    targets: Sequence[TargetNoise], settings: RuleSettings, effect: float
) -> tuple[BenchmarkPlan, ...]:
    """A plan for the time of each benchmark.

    `effect` is a fraction. The pairs are those that one look needs, in a suite of all these.
    """
    tests = sum(key[1] == TIME.name for known in targets for key in known.calibrations)
    plans = []
    for known in targets:
        for (benchmark, metric), calibration in known.calibrations.items():
            if metric != TIME.name:
                continue
            pairs = plan_pairs(
                settings,
                effect,
                calibration.variance**0.5,
                degrees=calibration.degrees,
                rebuild_sd=calibration.rebuild_sd,
                tests=tests,
            )
            plans.append(
                BenchmarkPlan(
                    benchmark=benchmark,
                    target=known.target,
                    pair_sd=calibration.variance**0.5,
                    degrees=calibration.degrees,
                    rebuild_sd=calibration.rebuild_sd,
                    pairs=pairs,
                    seconds=None if pairs is None else 2 * pairs * known.process_seconds,
                )
            )
    return tuple(plans)


def total_seconds(plans: Sequence[BenchmarkPlan]) -> float | None:
    """Of all targets, each with the pairs of its noisiest benchmark; None where one has none."""
    longest: dict[str, float] = {}
    for row in plans:
        if row.seconds is None:
            return None
        longest[row.target] = max(longest.get(row.target, 0.0), row.seconds)
    return sum(longest.values())
