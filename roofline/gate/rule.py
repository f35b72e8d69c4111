"""The rule of the gate: calibrated pairs of processes, looked at in stages.

A benchmark regressed where B is worse than A by more than `minimum_effect` beyond doubt, over the
whole suite (Benjamini and Hochberg), and by more than its budget by estimate. Only suspicious
benchmarks are measured again, and the suite's error rate is shared out over the looks, so looking
twice costs no false alarms. docs/gate_rule.md gives the reasons and the simulated error rates.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import stats

from gpuprof.roofline.statistics import (
    Array,
    Evidence,
    Numbers,
    p_above,
    p_below,
    pairs_needed,
    rejected,
    smallest_detectable,
)

# A change whose chance to be at its limit is below this is settled to be under it.
_SETTLED = 0.05
# The same before the first look, at which nothing but this is decided.
_CLEARED = 0.005


class RuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The rule's numbers. Rates and effects are fractions."""

    # False alarms per suite: the chance that any benchmark fails though nothing changed.
    alpha: float = 0.01
    # Changes up to this are never regressions: building the same code twice differs by as much.
    minimum_effect: float = 0.01
    # A regression fails where its estimate is above this, unless its budget says otherwise.
    fail_above: float = 0.02
    # Pairs in all after which the suite is looked at.
    looks: tuple[int, ...] = (5, 10, 20, 35)
    # Pairs after which what surely did not change is done with, before any look; 0 for never.
    cleared_after: int = 0
    # Benchmarks with a p-value under this are measured again.
    rerun_below: float = 0.2
    # That `smallest_detectable` is for.
    power: float = 0.95
    # A pair is measured again where one of its processes lost more of its samples.
    discarded_share: float = 0.5

    def __post_init__(self) -> None:
        rates = (self.alpha, self.rerun_below, self.power, self.discarded_share)
        if not all(0 < rate < 1 for rate in rates):
            raise ValueError("alpha, rerun_below, power and discarded_share lie between 0 and 1")
        if self.minimum_effect < 0 or self.fail_above < 0:
            raise ValueError("minimum_effect and fail_above are not negative")
        rising = all(a < b for a, b in zip(self.looks, self.looks[1:], strict=False))
        if not self.looks or self.looks[0] < 2 or not rising:
            raise ValueError("looks are rising numbers of pairs, the first at least 2")
        if self.cleared_after and not 2 <= self.cleared_after < self.looks[0]:
            raise ValueError("pairs are cleared before the first look, after at least 2")

    @property
    def first_pairs(self) -> int:
        """Pairs after which something can be decided."""
        return self.cleared_after or self.looks[0]

    @property
    def alphas(self) -> tuple[float, ...]:
        """The error rate of each look; their sum is `alpha`.

        The k-th has k times that of the first: later looks have more pairs, and decide more.
        """
        count = len(self.looks)
        parts = count * (count + 1) / 2
        return tuple(self.alpha * (look + 1) / parts for look in range(count))

    def null(self, rebuild_sd: float | None = None) -> float:
        """The logarithm of the largest change that is none: max(minimum_effect, 3 rebuild_sd)."""
        return float(np.log1p(max(self.minimum_effect, 3 * (rebuild_sd or 0.0))))


class Look(NamedTuple):
    """What one look at a suite decides: arrays of the shape of its evidence."""

    p_worse: Array
    p_better: Array
    regressed: npt.NDArray[np.bool_]
    improved: npt.NDArray[np.bool_]
    # Worse beyond doubt, but by less than the budget, or surely less than the budget.
    within: npt.NDArray[np.bool_]
    # Neither regressed nor cleared: worth more pairs.
    suspicious: npt.NDArray[np.bool_]


def look_at(
    found: Evidence,
    *,
    null: Numbers,
    limit: Numbers,
    improvement: Numbers,
    alpha: float,
    rerun_below: float,
    tested: bool | Sequence[bool] | npt.NDArray[np.bool_] = True,
) -> Look:
    """Decide a suite at one look. The last axis of all arrays is the suite's hypotheses.

    All effects are logarithms, positive for worse: `null` is what counts as no change, a
    regression's mean is above `limit`, an improvement's below minus `improvement`. Hypotheses
    that are not `tested` at this look stay in the suite's count.
    """
    tested = np.broadcast_to(np.asarray(tested, dtype=np.bool_), found.mean.shape)
    p_worse = np.where(tested, p_above(found, null), 1.0)
    p_better = np.where(tested, p_below(found, -np.asarray(null)), 1.0)
    worse = rejected(p_worse, alpha)
    regressed = worse & np.greater(found.mean, limit)
    settled = p_below(found, limit) < _SETTLED
    within = tested & ~regressed & (worse | settled)
    return Look(
        p_worse=p_worse,
        p_better=p_better,
        regressed=regressed,
        improved=rejected(p_better, alpha) & (found.mean < -np.asarray(improvement)),
        within=within,
        suspicious=tested & (p_worse < rerun_below) & ~regressed & ~settled,
    )


def cleared(found: Evidence, *, limit: Numbers, improvement: float) -> npt.NDArray[np.bool_]:
    """What is surely neither worse by `limit` nor better by `improvement`, as logarithms.

    Of true changes so large at most one in two hundred is. Nothing fails here, so there are no
    false alarms to share out.
    """
    worse, better = p_below(found, limit), p_above(found, -improvement)
    return np.asarray((worse < _CLEARED) & (better < _CLEARED))


def smallest_failing(
    found: Evidence, *, null: float, limit: float, alpha: float, power: float
) -> Array:
    """The least true worsening for which a look at `alpha` fails with chance `power`.

    The test must reject `null`, and the estimate be above `limit`. All are logarithms; for one
    hypothesis among m at the suite's rate a, `alpha` is a / m.
    """
    shown = smallest_detectable(found, null, alpha, power)
    return np.asarray(np.maximum(shown, limit + stats.norm.ppf(power) * found.standard_error))


def smallest_failing_by_all_looks(
    settings: RuleSettings, sd: float, degrees: int, *, null: float, limit: float, tests: int
) -> float:
    """The least true worsening for which the looks together fail with chance `power` or more.

    It must look suspicious at the first look and be shown at the last; each may miss half of
    what may be missed. `degrees` are the calibration's, `tests` the hypotheses in the suite.
    """
    rate = settings.alphas[-1] / tests
    last = _trial(settings.looks[-1], sd, degrees)
    if len(settings.looks) == 1:
        power = settings.power
        return float(smallest_failing(last, null=null, limit=limit, alpha=rate, power=power))
    each = (1 + settings.power) / 2
    first = _trial(settings.looks[0], sd, degrees)
    seen = smallest_detectable(first, null, settings.rerun_below, each)
    shown = smallest_failing(last, null=null, limit=limit, alpha=rate, power=each)
    return float(max(seen, shown))


def plan_pairs(
    settings: RuleSettings,
    effect: float,
    sd: float,
    *,
    degrees: int = 0,
    rebuild_sd: float | None = None,
    tests: int = 1,
) -> int | None:
    """Pairs with which a suite of `tests` hypotheses finds a worsening by `effect` at one look.

    `effect` is a fraction, `sd` of one pair's log difference, `degrees` those of the calibration.
    The error rate is that of the last look. None where no number of pairs can show it.
    """
    return pairs_needed(
        float(np.log1p(effect)),
        sd,
        settings.null(rebuild_sd),
        settings.alphas[-1] / tests,
        calibrated_degrees=degrees,
        power=settings.power,
    )


def _trial(pairs: int, sd: float, degrees: int) -> Evidence:
    return Evidence(
        np.asarray(float(pairs)),
        np.asarray(0.0),
        np.asarray(sd),
        np.asarray(float(pairs - 1 + degrees)),
    )
