"""Arithmetic on time intervals."""

import numpy as np
from numpy.typing import NDArray

_Times = NDArray[np.int64]


def union_ns(start_ns: _Times, end_ns: _Times) -> int:
    """Nanoseconds covered by at least one of the intervals [start, end)."""
    if start_ns.size == 0:
        return 0
    order = np.argsort(start_ns, kind="stable")
    start, end = start_ns[order], end_ns[order]
    # What earlier intervals have covered already is not counted again.
    covered_until = np.maximum.accumulate(end)
    begins = np.maximum(start[1:], covered_until[:-1])
    return int(end[0] - start[0] + np.maximum(end[1:] - begins, 0).sum())


def clipped(start_ns: _Times, end_ns: _Times, window_ns: tuple[int, int]) -> tuple[_Times, _Times]:
    """The parts of the intervals that lie in `window_ns`; those outside have no length."""
    first, last = window_ns
    start = np.clip(start_ns, first, last)
    return start, np.maximum(np.clip(end_ns, first, last), start)
