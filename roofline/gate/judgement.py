"""What the gate says of one metric of one benchmark."""

from typing import Literal

import msgspec

from gpuprof.roofline.gate.budget import BudgetLevel
from gpuprof.roofline.gate.series import Metric

Verdict = Literal[
    "PASS", "REGRESSED", "IMPROVED", "CHANGED-KERNEL", "INCONCLUSIVE", "INCOMPARABLE", "ERROR"
]
# Stable words for machines; `Judgement.message` says the same with the figures.
Reason = Literal[
    # PASS
    "no-change",
    "below-budget",
    "new",
    # PASS, or REGRESSED where a budget forbids it
    "class-changed",
    # REGRESSED
    "slower",
    "over-maximum",
    "under-minimum",
    "counter-worse",
    # IMPROVED
    "faster",
    "counter-better",
    # CHANGED-KERNEL
    "kernels-vary",
    "kernels-differ",
    # INCONCLUSIVE
    "suspicious",
    "near-limit",
    "budget-below-noise",
    "too-few-pairs",
    "counter-varies",
    "time-limit",
    # INCOMPARABLE
    "environment-differs",
    # ERROR
    "crashed",
    "no-data",
    "bad-sample",
    "missing-metric",
]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one series, with what it rests on.

    Changes are fractions of the base's value: +0.05 is five per cent more, for times and rates
    alike; `Metric.better` says which way is worse. None is unknown.
    """

    benchmark: str
    metric: Metric
    verdict: Verdict
    reason: Reason
    # One sentence with the figures.
    message: str
    level: BudgetLevel = "error"
    # How many more pairs the rule asks for before it decides; 0 where the verdict is final.
    pairs_wanted: int = 0
    # Pairs that the figures rest on.
    pairs: int = 0
    # Geometric means over the processes, in the metric's unit.
    base: float | None = None
    head: float | None = None
    change: float | None = None
    # 95 %, of this series alone.
    interval: tuple[float, float] | None = None
    # The least worsening for which these pairs alone fail with the wanted power, at this look.
    smallest_detectable: float | None = None
    # The same for all looks together: what measuring suspicious benchmarks again brings.
    smallest_detectable_with_rerun: float | None = None
    # The chance of these pairs or worse ones if B were worse by no more than `minimum_effect`,
    # and the same for better.
    p_worse: float | None = None
    p_better: float | None = None
    minimum_effect: float | None = None
    # The change beyond which it fails: its budget, or the gate's own limit.
    limit: float | None = None
    # Standard deviation of a pair's log difference as the test used it.
    pair_sd: float | None = None
    # B over A minus 1, for each pair.
    pair_changes: tuple[float, ...] = ()
    # Every process of one side ran other kernels than those of the other side.
    kernels_changed: bool = False
    # What this noise hides, though a budget or common sense asks for it; the pairs that are enough.
    warnings: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether a gate that holds its budgets must fail for it: a regression, or no data."""
        return self.level == "error" and self.verdict in ("REGRESSED", "ERROR")
