"""Percentiles and outliers of counted lengths."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, gcd
from typing import Final

from gpuprof.roofline.slow_step_figures import Percentile

# Lengths in ascending order, each with how many steps were as long.
Counted = Sequence[tuple[int, int]]

_FRACTIONS: Final = (0.5, 0.95, 0.99)
# Tukey's outer fence (Exploratory Data Analysis, 1977): what lies beyond is "far out".
_FENCE: Final = 3
# Of the median: who reads a step's time does not care for less.
_NOTABLE: Final = 0.05
_NOTABLE_OF_FEW: Final = 0.2
# Fewer steps have no quartiles worth the name.
_FEWEST: Final = 8
_FEWEST_OF_A_PERIOD: Final = 6
_SHORTEST_PERIOD: Final = 5


def quantile(counted: Counted, fraction: float) -> int:
    """The length that `fraction` of the steps do not exceed, between ranks in a straight line.

    As numpy's percentile has it. Raises `ValueError` without steps.
    """
    steps = sum(count for _, count in counted)
    rank = fraction * (steps - 1)
    below = _at_rank(counted, floor(rank))
    above = _at_rank(counted, ceil(rank))
    return round(below + (rank - floor(rank)) * (above - below))


def _at_rank(counted: Counted, rank: int) -> int:
    passed = 0
    for length_ns, count in counted:
        passed += count
        if passed > rank:
            return length_ns
    raise ValueError(f"there is no step number {rank}")


def percentiles(counted: Counted) -> tuple[Percentile, ...]:
    """P50, and P95 and P99 where at least one step can lie above them."""
    steps = sum(count for _, count in counted)
    return tuple(
        Percentile(fraction, quantile(counted, fraction))
        for fraction in _FRACTIONS
        # 0.05 * 20 is a little less than 1 in binary.
        if steps * (1 - fraction) >= 0.999
    )


def outlier_limit_ns(counted: Counted) -> int:
    """Steps that take longer are outliers; of few steps those that are a fifth over the median."""
    median_ns = quantile(counted, 0.5)
    if sum(count for _, count in counted) < _FEWEST:
        return round(median_ns * (1 + _NOTABLE_OF_FEW))
    lower, upper = quantile(counted, 0.25), quantile(counted, 0.75)
    return max(upper + _FENCE * (upper - lower), round(median_ns * (1 + _NOTABLE)))


def counted_above(counted: Counted, limit_ns: int) -> Counted:
    """The lengths over `limit_ns`, with their counts."""
    return [(length_ns, count) for length_ns, count in counted if length_ns > limit_ns]


def common_period(indices: Sequence[int]) -> int | None:
    """The number of steps of which all distances between `indices` are multiples; None without.

    Five distances that have nothing to do with each other have a common divisor of five or more
    in less than one of a thousand cases.
    """
    ordered = sorted(indices)
    if len(ordered) < _FEWEST_OF_A_PERIOD:
        return None
    period = 0
    for earlier, later in pairwise(ordered):
        period = gcd(period, later - earlier)
    return period if period >= _SHORTEST_PERIOD else None
