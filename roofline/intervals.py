"""Arithmetic on time intervals."""

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]


def union_ns(start_ns: Nanoseconds, end_ns: Nanoseconds) -> int:
    """Nanoseconds covered by at least one of the intervals [start, end)."""
    if start_ns.size == 0:
        return 0
    start, end = _by_start(start_ns, end_ns)
    # What earlier intervals have covered already is not counted again.
    covered_until = np.maximum.accumulate(end)
    begins = np.maximum(start[1:], covered_until[:-1])
    return int(end[0] - start[0] + np.maximum(end[1:] - begins, 0).sum())


def _by_start(start_ns: Nanoseconds, end_ns: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
    if (start_ns[1:] >= start_ns[:-1]).all():
        return start_ns, end_ns
    order = np.argsort(start_ns, kind="stable")
    return start_ns[order], end_ns[order]


def are_in_order(start_ns: Nanoseconds, end_ns: Nanoseconds) -> bool:
    """Whether they are by start, and of those that begin at once the longer ones first."""
    later, at_once = start_ns[1:] > start_ns[:-1], start_ns[1:] == start_ns[:-1]
    return bool((later | (at_once & (end_ns[1:] <= end_ns[:-1]))).all())


def begun_by(edges: Nanoseconds, times_ns: Nanoseconds) -> NDArray[np.int64]:
    """How many of `edges`, in order, are at or before each of `times_ns`.

    Few edges cut times that are in order themselves, as those of a table are, into a few parts:
    quicker than to look for each of a million times.
    """
    if len(times_ns) < len(edges) or not (times_ns[1:] >= times_ns[:-1]).all():
        return np.searchsorted(edges, times_ns, side="right")
    bounds = np.searchsorted(times_ns, edges, side="left")
    lengths = np.diff(bounds, prepend=0, append=len(times_ns))
    return np.repeat(np.arange(len(edges) + 1), lengths)


def clipped(
    start_ns: Nanoseconds, end_ns: Nanoseconds, window_ns: tuple[int, int]
) -> tuple[Nanoseconds, Nanoseconds]:
    """The parts of the intervals that lie in `window_ns`; those outside have no length."""
    first, last = window_ns
    start = np.clip(start_ns, first, last)
    return start, np.maximum(np.clip(end_ns, first, last), start)


def merged(start_ns: Nanoseconds, end_ns: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
    """The union of the intervals as intervals that do not touch, in order of time."""
    start, end = _by_start(start_ns, end_ns)
    reached = np.maximum.accumulate(end)
    # One begins where all before it have ended, and the one before ends there.
    begins = np.ones(len(start), np.bool_)
    begins[1:] = start[1:] > reached[:-1]
    return start[begins], reached[np.append(begins[1:], True)[: len(start)]]


def covered_ns(disjoint: tuple[Nanoseconds, Nanoseconds], until_ns: Nanoseconds) -> Nanoseconds:
    """For each time how much of what lies before it the intervals cover, `merged` ones."""
    start, end = disjoint
    before = np.concatenate([[0], np.cumsum(end - start)])
    # The last interval to begin by then may reach beyond it.
    count = np.searchsorted(start, until_ns, side="right")
    last_end = np.append(end, 0)[count - 1]
    covered: Nanoseconds = before[count] - np.where(
        count > 0, np.maximum(last_end - until_ns, 0), 0
    )
    return covered
