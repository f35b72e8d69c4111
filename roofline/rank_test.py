"""Mann and Whitney's rank test, in plain Python.

scipy has it, in a package that takes longer to import than a whole run takes to analyse.
"""

import math
from collections import Counter
from collections.abc import Sequence

# Up to so many values on one side the distribution is counted out, where there are no ties.
_FEW = 8


def rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """The chance of ranks as far apart or farther, were both samples of one distribution.

    Two-sided. Exact where a side has eight values or fewer and no value occurs twice; else the
    normal approximation with corrections for ties and continuity (Mann and Whitney 1947, doi
    10.1214/aoms/1177730491; Hollander and Wolfe, Nonparametric Statistical Methods, 4.1). Both
    samples have a value at least.
    """
    m, n = len(first), len(second)
    ranks = _ranks((*first, *second))
    below = math.fsum(ranks[:m]) - m * (m + 1) / 2
    u = max(below, m * n - below)
    tied = Counter((*first, *second)).values()
    if min(m, n) <= _FEW and max(tied) == 1:
        counts = _counts(m, n)
        return min(1.0, 2 * sum(counts[round(u) :]) / math.comb(m + n, m))
    correction = sum(t**3 - t for t in tied) / ((m + n) * (m + n - 1))
    deviation = math.sqrt(m * n / 12 * (m + n + 1 - correction))
    if deviation == 0:
        return 1.0
    z = (u - m * n / 2 - 0.5) / deviation
    return min(1.0, math.erfc(z / math.sqrt(2)))


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = (start + 1 + end) / 2
        start = end
    return ranks


def _counts(m: int, n: int) -> list[int]:
    """In how many orders of m and n values each U occurs, from 0 to m n.

    They are the coefficients of the product of (1 - x^(n + i)) / (1 - x^i), i from 1 to m.
    """
    counts = [1] + [0] * (m * n)
    for i in range(1, m + 1):
        for u in range(m * n, n + i - 1, -1):
            counts[u] -= counts[u - n - i]
        for u in range(i, m * n + 1):
            counts[u] += counts[u - i]
    return counts
