"""The hypotheses of a suite, and what a look says of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuprof.roofline.gate.rule import RuleSettings, cleared, look_at
from gpuprof.roofline.gate.series import Pairing, Series, usable
from gpuprof.roofline.statistics import Evidence, evidence

HypothesisKind = Literal["relative", "maximum", "minimum"]


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis: logarithms, positive for worse, one a pair."""

    # Index of its series in the suite.
    series: int
    kind: HypothesisKind
    values: tuple[float, ...]
    # Of one value, from the calibration.
    variance: float
    degrees: int
    # What counts as no change, and what a regression's mean is above.
    null: float
    limit: float

    def look(self, settings: RuleSettings) -> int | None:
        """The last look that the pairs reach; None where they reach none."""
        reached = [i for i, pairs in enumerate(settings.looks) if pairs <= len(self.values)]
        return reached[-1] if reached else None


@dataclass(frozen=True)
class Result:
    """A test with what was decided of it."""

    test: Hypothesis
    # Index into settings.looks; None where there are too few pairs for any look.
    look: int | None
    # None with fewer than two pairs.
    found: Evidence | None
    p_worse: float = 1.0
    p_better: float = 1.0
    regressed: bool = False
    improved: bool = False
    within: bool = False
    suspicious: bool = False
    # Before the first look: surely no change.
    cleared: bool = False

    @property
    def mean(self) -> float:
        return 0.0 if self.found is None else float(self.found.mean)


def hypotheses(
    index: int, series: Series, pairing: Pairing, settings: RuleSettings
) -> tuple[Hypothesis, ...]:
    """The hypotheses of one series: worse than its base, and beyond each absolute limit."""
    budget, calibration = series.budget, series.calibration
    variance = 0.0 if calibration is None else calibration.variance
    degrees = 0 if calibration is None else calibration.degrees
    tests = []
    if series.side("A"):
        limit = settings.fail_above if budget.regress is None else budget.regress
        null = settings.null(None if calibration is None else calibration.rebuild_sd)
        differences = pairing.differences(series.metric.better)
        tests.append(
            Hypothesis(index, "relative", differences, variance, degrees, null, math.log1p(limit))
        )
        head = [b.log_value for _, b in pairing.pairs]
    else:
        head = [r.log_value for r in series.side("B") if usable(r, settings.discarded_share)]
    # One process varies half as much as the difference of two.
    bounds: tuple[tuple[HypothesisKind, float | None, int], ...] = (
        ("maximum", budget.maximum, 1),
        ("minimum", budget.minimum, -1),
    )
    for kind, bound, sign in bounds:
        if bound is not None:
            over = tuple(sign * (value - math.log(bound)) for value in head)
            tests.append(Hypothesis(index, kind, over, variance / 2, degrees, 0.0, 0.0))
    return tuple(tests)


def decide(tests: Sequence[Hypothesis], settings: RuleSettings) -> tuple[Result, ...]:
    """Every test at its own look, with the suite's count of tests at each."""
    looks = [test.look(settings) for test in tests]
    # What a test has beyond its look is not used: looking at any number of pairs is not paid for.
    used = [
        test.values if look is None else test.values[: settings.looks[look]]
        for test, look in zip(tests, looks, strict=True)
    ]
    table = np.full((len(tests), max([2, *map(len, used)])), np.nan)
    for row, values in enumerate(used):
        table[row, : len(values)] = values
    enough = np.array([len(values) >= 2 for values in used], dtype=np.bool_)
    # A row of two zeros stands in for a test without evidence; it is never tested.
    table[~enough, :2] = 0.0
    found = evidence(table, [test.variance for test in tests], [test.degrees for test in tests])
    decided = [
        look_at(
            found,
            null=[test.null for test in tests],
            limit=[test.limit for test in tests],
            improvement=math.log1p(settings.fail_above),
            alpha=alpha,
            rerun_below=settings.rerun_below,
            tested=[own == look for own in looks],
        )
        for look, alpha in enumerate(settings.alphas)
    ]
    clear = cleared(
        found,
        limit=[test.limit for test in tests],
        improvement=math.log1p(settings.fail_above),
    )
    results = []
    for row, (test, look) in enumerate(zip(tests, looks, strict=True)):
        own = Evidence(*(part[row] for part in found)) if enough[row] else None
        if look is None:
            reached = 0 < settings.cleared_after <= len(test.values)
            results.append(Result(test, look, own, cleared=reached and bool(clear[row])))
            continue
        at = decided[look]
        results.append(
            Result(
                test,
                look,
                own,
                p_worse=float(at.p_worse[row]),
                p_better=float(at.p_better[row]),
                regressed=bool(at.regressed[row]),
                improved=bool(at.improved[row]),
                within=bool(at.within[row]),
                suspicious=bool(at.suspicious[row]),
            )
        )
    return tuple(results)
