"""From the runs of a suite to its verdicts: the rule applied to real, imperfect data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gpuprof.roofline.gate.hypotheses import Result, decide, hypotheses
from gpuprof.roofline.gate.judgement import Judgement, Reason, Verdict
from gpuprof.roofline.gate.refusal import refusal
from gpuprof.roofline.gate.rule import (
    RuleSettings,
    plan_pairs,
    smallest_failing,
    smallest_failing_by_all_looks,
)
from gpuprof.roofline.gate.series import Better, Pairing, ProcessRun, Series, pair_up, usable
from gpuprof.roofline.statistics import Evidence, evidence, interval, p_above

# The logarithm of a change so large that nobody could mean it: what very few pairs can detect.
_MOST = 50.0
# A gate that cannot see even such a change must say so where no budget asks for less.
_WORTH_SEEING = 0.10
# The p-value under which pairs of differing kernels are said to show a change.
_EXPLAINED = 0.05


def judge(
    suite: Sequence[Series], settings: RuleSettings | None = None, *, give_up: bool = False
) -> tuple[Judgement, ...]:
    """The verdict on each series of `suite`, in its order.

    Each is judged at the last look that its usable pairs reach. Where `pairs_wanted` is not 0,
    measure so many more pairs of that benchmark and judge the whole suite again; the verdict says
    what it would be without. With `give_up` no more will come, and all verdicts are final.
    """
    settings = settings or RuleSettings()
    refused = [refusal(series, settings) for series in suite]
    pairings = [pair_up(series, discarded_share=settings.discarded_share) for series in suite]
    tests = [
        test
        for index, series in enumerate(suite)
        if refused[index] is None
        for test in hypotheses(index, series, pairings[index], settings)
    ]
    results = decide(tests, settings)
    judgements = []
    for index, series in enumerate(suite):
        judgement = refused[index]
        if judgement is None:
            own = tuple(result for result in results if result.test.series == index)
            judgement = _Decision(series, pairings[index], own, settings, len(tests)).judgement()
        judgements.append(
            msgspec.structs.replace(judgement, pairs_wanted=0) if give_up else judgement
        )
    return tuple(judgements)


@dataclass(frozen=True)
class _Decision:
    """One series with the results of its tests, on the way to its verdict."""

    series: Series
    pairing: Pairing
    results: tuple[Result, ...]
    settings: RuleSettings
    tests: int

    def judgement(self) -> Judgement:
        """The worst of what the tests say."""
        relative = next((r for r in self.results if r.test.kind == "relative"), None)
        absolute = [r for r in self.results if r.test.kind != "relative"]
        over = next((r for r in absolute if r.regressed), None)
        near = next((r for r in absolute if r.suspicious), None)
        short = [r for r in self.results if r.look is None and not self._is_cleared]
        if relative is not None and relative.regressed:
            return self._say(
                "REGRESSED", "slower", f"{self._worse(relative)}, over its {self._limit(relative)}"
            )
        if over is not None:
            which: Reason = "over-maximum" if over.test.kind == "maximum" else "under-minimum"
            return self._say("REGRESSED", which, self._beyond(over))
        if short:
            return self._too_few()
        if varying := self._kernels_vary(relative):
            return varying
        if relative is not None and relative.suspicious:
            return self._say(
                "INCONCLUSIVE",
                "suspicious",
                f"perhaps {self._worse(relative)} (p = {relative.p_worse:.2g}): "
                "not enough evidence to fail, too much to pass",
            )
        if near is not None:
            return self._say("INCONCLUSIVE", "near-limit", f"perhaps {self._beyond(near)}")
        if relative is None:
            return self._say("PASS", "new", "new, not gated: the base does not have it")
        if not self._is_cleared and self._hidden_by_noise(relative):
            return self._say(
                "INCONCLUSIVE",
                "budget-below-noise",
                f"{self._worse(relative)}; this noise can hide a change as large as its budget",
            )
        if relative.improved:
            return self._say("IMPROVED", "faster", self._worse(relative))
        if relative.within and relative.p_worse < self.settings.rerun_below:
            return self._say(
                "PASS",
                "below-budget",
                f"{self._worse(relative)}, within its {self._limit(relative)}",
            )
        return self._say("PASS", "no-change", f"{self._worse(relative)}: no change is shown")

    @property
    def _is_cleared(self) -> bool:
        """Whether it is done with before the first look, by pairs of which each one counts."""
        odd = self.pairing.unusable or self.pairing.mixed
        return bool(self.results) and not odd and all(result.cleared for result in self.results)

    def _too_few(self) -> Judgement:
        count = len(self.pairing.pairs)
        reasons = []
        if self.pairing.unusable:
            reasons.append(f"{self.pairing.unusable} are incomplete or lost too many samples")
        if self.pairing.mixed:
            reasons.append(f"in {len(self.pairing.mixed)} the two sides picked other kernels")
        why = f" ({'; '.join(reasons)})" if reasons else ""
        message = f"{count} of {self.settings.looks[0]} pairs are usable{why}"
        if len(self.pairing.mixed) > count:
            # Both sides know both choices, yet most pairs do not agree.
            return self._say("CHANGED-KERNEL", "kernels-vary", message)
        return self._say("INCONCLUSIVE", "too-few-pairs", message)

    def _kernels_vary(self, relative: Result | None) -> Judgement | None:
        """CHANGED-KERNEL where pairs of the same kernels agree, but all pairs show a change."""
        if relative is None or relative.look is None or not self.pairing.mixed:
            return None
        every = self.pairing.differences(self.series.metric.better, with_mixed=True)
        found = evidence(every, relative.test.variance, relative.test.degrees)
        # A choice that comes and goes spreads the differences far, so a test at the suite's rate
        # would miss it; naming it fails nothing.
        chance = float(p_above(found, relative.test.null))
        if chance >= _EXPLAINED or float(found.mean) <= relative.test.limit:
            return None
        return self._say(
            "CHANGED-KERNEL",
            "kernels-vary",
            f"{self._worse(relative)} where both sides ran the same kernels, "
            f"{_change(float(found.mean), self.series.metric.better)} over all pairs: "
            "the choice of kernels explains it",
        )

    def _hidden_by_noise(self, relative: Result) -> bool:
        """Whether a change beyond the series' own budget may hide in the noise."""
        budget = self.series.budget.regress
        if budget is None or relative.found is None or relative.within or relative.improved:
            return False
        upper = float(interval(relative.found, 0.9)[1])
        shown = self._least_failing(relative, relative.found, limit=0.0)
        return upper >= math.log1p(budget) and shown > math.log1p(budget)

    def _least_failing(self, relative: Result, found: Evidence, *, limit: float) -> float:
        """The least worsening that all looks find; with a `limit` of 0, that they show at all."""
        return smallest_failing_by_all_looks(
            self.settings,
            float(found.sd),
            relative.test.degrees,
            null=relative.test.null,
            limit=limit,
            tests=self.tests,
        )

    def _warnings(self, relative: Result) -> tuple[str, ...]:
        budget = self.series.budget.regress
        if relative.found is None or (budget is None and relative.regressed):
            return ()
        if budget is not None and budget <= math.expm1(relative.test.null):
            return (
                f"a budget of {budget:.1%} is not above {math.expm1(relative.test.null):.1%}, "
                "the difference that two builds of the same code may have",
            )
        wanted = _WORTH_SEEING if budget is None else budget
        limit = relative.test.limit if budget is None else 0.0
        detectable = self._least_failing(relative, relative.found, limit=limit)
        if detectable <= math.log1p(wanted):
            return ()
        pairs = plan_pairs(
            self.settings,
            wanted,
            float(relative.found.sd),
            degrees=relative.test.degrees,
            rebuild_sd=self.series.calibration.rebuild_sd if self.series.calibration else None,
            tests=self.tests,
        )
        remedy = (
            f"no number of pairs shows {wanted:.1%}"
            if pairs is None
            else f"pairs = [{pairs}] in [gate] shows {wanted:.1%}"
        )
        seen = math.expm1(min(detectable, _MOST))
        if budget is None:
            return (f"this noise hides changes up to {seen:.0%}; {remedy}",)
        return (
            f"a budget of {budget:.1%} is below the {seen:.1%} that this noise hides; {remedy}",
        )

    def _say(self, verdict: Verdict, reason: Reason, message: str) -> Judgement:
        series, settings = self.series, self.settings
        relative = next((r for r in self.results if r.test.kind == "relative"), None)
        figures: dict[str, Any] = {}
        if relative is not None and relative.found is not None:
            figures = self._figures(relative, relative.found)
        head = [b for _, b in self.pairing.pairs]
        if not head:
            head = [run for run in series.side("B") if usable(run, settings.discarded_share)]
        return Judgement(
            benchmark=series.benchmark,
            metric=series.metric,
            verdict=verdict,
            reason=reason,
            message=message,
            level=series.budget.level,
            pairs_wanted=self._pairs_wanted(),
            pairs=len(self.pairing.pairs),
            base=_mean_value([a for a, _ in self.pairing.pairs]),
            head=_mean_value(head),
            kernels_changed=self.pairing.kernels_changed,
            **figures,
        )

    def _figures(self, relative: Result, found: Evidence) -> dict[str, Any]:
        sign = 1 if self.series.metric.better == "lower" else -1
        ends = sorted(math.expm1(sign * float(end)) for end in interval(found))
        look = relative.look or 0
        alpha = self.settings.alphas[look] / self.tests
        least = smallest_failing(
            found,
            null=relative.test.null,
            limit=relative.test.limit,
            alpha=alpha,
            power=self.settings.power,
        )
        by_all = self._least_failing(relative, found, limit=relative.test.limit)
        used = relative.test.values[: self.settings.looks[look]]
        return {
            "change": math.expm1(sign * relative.mean),
            "interval": (ends[0], ends[1]),
            "smallest_detectable": math.expm1(min(float(least), _MOST)),
            "smallest_detectable_with_rerun": math.expm1(min(by_all, _MOST)),
            "p_worse": relative.p_worse if relative.look is not None else None,
            "p_better": relative.p_better if relative.look is not None else None,
            "limit": math.expm1(sign * relative.test.limit),
            "minimum_effect": math.expm1(relative.test.null),
            "pair_sd": float(found.sd),
            "pair_changes": tuple(math.expm1(sign * value) for value in used),
            "warnings": self._warnings(relative),
        }

    def _pairs_wanted(self) -> int:
        measured = min(len(result.test.values) for result in self.results) if self.results else 0
        looks, first = self.settings.looks, self.settings.first_pairs
        if self._is_cleared:
            return 0
        if any(result.look is None for result in self.results):
            return (first if measured < first else looks[0]) - measured
        if any(result.regressed for result in self.results):
            return 0
        later = [
            looks[result.look + 1] - measured
            for result in self.results
            if result.suspicious and result.look is not None and result.look + 1 < len(looks)
        ]
        return max(later, default=0)

    def _worse(self, result: Result) -> str:
        return _change(result.mean, self.series.metric.better)

    def _limit(self, result: Result) -> str:
        whose = "limit" if self.series.budget.regress is None else "budget"
        return f"{whose} of {math.expm1(result.test.limit):.1%}"

    def _beyond(self, result: Result) -> str:
        share = math.expm1(abs(result.mean))
        which = "over its maximum" if result.test.kind == "maximum" else "under its minimum"
        return f"{share:.1%} {which}"


def _change(mean: float, better: Better) -> str:
    """A mean logarithm, positive for worse, as a percentage of the metric: "+5.0%"."""
    change = math.expm1(mean if better == "lower" else -mean)
    return f"{change:+.1%}"


def _mean_value(runs: Sequence[ProcessRun]) -> float | None:
    return math.exp(math.fsum(r.log_value for r in runs) / len(runs)) if runs else None
