"""Arithmetic on time intervals."""

import numpy as np
from numpy.typing import NDArray


def union_ns(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> int:
    """Nanoseconds covered by at least one of the intervals [start, end)."""
    if start_ns.size == 0:
        return 0
    order = np.argsort(start_ns, kind="stable")
    start, end = start_ns[order], end_ns[order]
    # What earlier intervals have covered already is not counted again.
    covered_until = np.maximum.accumulate(end)
    begins = np.maximum(start[1:], covered_until[:-1])
    return int(end[0] - start[0] + np.maximum(end[1:] - begins, 0).sum())
