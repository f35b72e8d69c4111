"""The median of a few samples and how well it is known, without a guess at their distribution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Median:
    """The median of samples, the interval it lies in at `CONFIDENCE`, and the samples' spread."""

    value: int
    # None where the samples are too few for an interval.
    lower: int | None
    upper: int | None
    # The interquartile range over the median; None for one sample.
    relative_spread: float | None

    def is_within(self, share: float) -> bool:
        """Whether the interval reaches no further than `share` of the median to either side."""
        if self.lower is None or self.upper is None:
            return False
        farthest = max(self.upper - self.value, self.value - self.lower)
        return farthest <= share * self.value


def median_of(samples: Sequence[int]) -> Median:
    """The median of at least one sample.

    The interval lies between two order statistics (Conover, Practical Nonparametric Statistics,
    3.2): a sample is below the true median with probability 1/2, so how many are is binomial.
    """
    ordered = sorted(samples)
    position = _order_statistic(len(ordered))
    value = float(np.median(ordered))
    lower, upper = np.percentile(ordered, [25, 75])
    return Median(
        round(value),
        None if position is None else ordered[position - 1],
        None if position is None else ordered[-position],
        float(upper - lower) / value if len(ordered) > 1 and value else None,
    )


def _order_statistic(count: int) -> int | None:
    """The largest k for which the k-th smallest and k-th largest enclose the median."""
    tail = (1 - CONFIDENCE) / 2
    below = 0.0
    for k in range(count):
        below += math.exp(
            math.lgamma(count + 1)
            - math.lgamma(k + 1)
            - math.lgamma(count - k + 1)
            - count * math.log(2)
        )
        if below > tail:
            return k or None
    return None
