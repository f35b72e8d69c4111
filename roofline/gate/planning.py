"""How many pairs a change of a given size needs, and how long they take."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof.profiler.gate.calibration_store import NoiseSession, pooled
from gpuprof.roofline.gate.rule import RuleSettings, plan_pairs
from gpuprof.roofline.gate.series import TIME


@dataclass(frozen=True)
class BenchmarkPlan:
    """What the time of one benchmark needs."""

    benchmark: str
    target: str
    # Of one pair's log difference, with its degrees of freedom.
    pair_sd: float
    degrees: int
    rebuild_sd: float | None
    # None where no number of pairs would do.
    pairs: int | None
    # Of these pairs; a target's benchmarks share its processes.
    seconds: float | None


def plan(
    sessions: Sequence[Sequence[NoiseSession]], settings: RuleSettings, effect: float
) -> tuple[BenchmarkPlan, ...]:
    """A plan for each benchmark; `sessions` are those of each target, none of them empty.

    `effect` is a fraction. The pairs are those that one look needs, in a suite of all these.
    """
    found = {own[-1].target.name: (own, pooled(own)) for own in sessions}
    tests = sum(key[1] == TIME.name for _, known in found.values() for key in known)
    plans = []
    for target, (own, known) in found.items():
        for (benchmark, metric), calibration in known.items():
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
                    target=target,
                    pair_sd=calibration.variance**0.5,
                    degrees=calibration.degrees,
                    rebuild_sd=calibration.rebuild_sd,
                    pairs=pairs,
                    seconds=None if pairs is None else 2 * pairs * own[-1].seconds,
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
