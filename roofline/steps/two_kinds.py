"""Whether timed steps are of two kinds, short and long ones, of which a median is neither.

A loader that fetches two batches at once, gradients that are accumulated over several steps, or a
checkpoint every so often make each second or third step longer.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from gpuprof.roofline.durations import duration

# Of the steps, to be a kind of their own. Fewer are outliers, which a median leaves out.
_LEAST: Final = 0.3
_FEWEST_STEPS: Final = 6
# Of the whole range of lengths: what the longest gap between two neighbours has to be. Of steps of
# one kind, lengths are closest in their middle.
_GAP: Final = 0.5
# Of the shorter kind: what the longer one takes more.
_LONGER: Final = 0.2


def two_kinds(lengths_ns: Sequence[int]) -> str | None:
    """A sentence where steps of these lengths are of two kinds, else None."""
    if len(lengths_ns) < _FEWEST_STEPS:
        return None
    ordered = sorted(lengths_ns)
    gaps = [after - before for before, after in pairwise(ordered)]
    longest = max(gaps)
    split = gaps.index(longest) + 1
    short, long = ordered[:split], ordered[split:]
    if longest <= _GAP * (ordered[-1] - ordered[0]) or not longest:
        return None
    if min(len(short), len(long)) < _LEAST * len(ordered):
        return None
    if median(long) <= (1 + _LONGER) * median(short):
        return None
    return (
        f"{len(short)} of {len(ordered)} timed steps took about {duration(median(short))} and "
        f"{len(long)} about {duration(median(long))}: the median stands for neither kind, and a "
        f"mean step takes {duration(fmean(ordered))}"
    )
