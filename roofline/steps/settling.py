"""Whether timed steps were still changing: clocks that fall to a power limit, caches that fill."""

from collections.abc import Sequence
from statistics import median

# Steps before which half are compared with the other half; with more, the first quarter with the
# rest, since what settles does so early.
_FEW = 20
_FEWEST = 10
# Smaller changes matter to nobody who reads one median.
_SHARE = 0.03
_SURE = 0.01


def unsettled(samples_ns: Sequence[int]) -> str | None:
    """A sentence where the first timed steps were of another length than the others, else None.

    Where the medians differ by over 3 %, Mann and Whitney's rank test must find so clear a
    difference less than once in a hundred runs of steps that do not change. At least ten steps.
    """
    count = len(samples_ns)
    if count < _FEWEST:
        return None
    split = count // 2 if count < _FEW else count // 4
    first, rest = samples_ns[:split], samples_ns[split:]
    change = median(rest) / median(first) - 1 if median(first) else 0.0
    if abs(change) < _SHARE:
        return None
    # Imported where it is needed, as it takes longer than all else here.
    from scipy import stats

    if float(stats.mannwhitneyu(first, rest).pvalue) >= _SURE:
        return None
    return (
        f"the first {split} of {count} timed steps took {median(first) / 1e6:.4g} ms, the others "
        f"{median(rest) / 1e6:.4g} ms ({change:+.1%}): the device's clock, a cache or the program "
        "was still settling; more warm-up steps keep that out of the step time"
    )
