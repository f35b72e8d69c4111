"""Which interval encloses which, on each thread."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from gpuprof.collectors.native import compiled

Integers = npt.NDArray[np.int64]
NONE: Final = -1
# Later than any time: the end of an interval that was never closed.
NEVER: Final = 2**63 - 1
# Below any number of a thread: rows that have none.
_NO_THREAD: Final = -(2**63)
# Python integers take four times the memory of an array's.
_ROWS_AS_LISTS: Final = 1 << 16


def parents(threads: Integers, starts: Integers, ends: Integers) -> Integers:
    """For each interval the position of the innermost one around it on its thread, or -1.

    All arrays have one entry an interval, sorted by start and, where starts are equal, outer ones
    first. An interval belongs to those that contain its start: a child may seem to end after its
    parent where a clock was rounded, and is cut there for what follows.
    """
    if compiled is not None:
        return np.frombuffer(compiled.parents(*map(contiguous, (threads, starts, ends))), np.int64)
    return parents_in_python(threads, starts, ends)


def contiguous(array: npt.NDArray[np.integer[Any]]) -> Integers:
    """`array` as compiled code takes it."""
    return np.ascontiguousarray(array, np.int64)


def parents_in_python(threads: Integers, starts: Integers, ends: Integers) -> Integers:
    """`parents` without compiled code: the same, slower by a hundred times."""
    if _follow_each_other(threads, starts, ends):
        return np.full(len(starts), NONE, np.int64)
    # One pass with a stack a thread. A loop over lists: faster than a vector pass per depth.
    # Each stack stands on an interval without end, which stands for "none".
    stacks: dict[int, list[tuple[int, int]]] = {}
    result = np.empty(len(starts), np.int64)
    stack: list[tuple[int, int]] = []
    current = None
    for begin in range(0, len(starts), _ROWS_AS_LISTS):
        part = slice(begin, begin + _ROWS_AS_LISTS)
        found = []
        rows = zip(threads[part].tolist(), starts[part].tolist(), ends[part].tolist(), strict=True)
        for position, (thread, start, end) in enumerate(rows, begin):
            if thread != current:
                stack = stacks.setdefault(thread, [(NEVER + 1, NONE)])
                current = thread
            outer_end, outer = stack[-1]
            while outer_end <= start:
                stack.pop()
                outer_end, outer = stack[-1]
            found.append(outer)
            stack.append((end if end < outer_end else outer_end, position))
        result[part] = found
    return result


def _follow_each_other(threads: Integers, starts: Integers, ends: Integers) -> bool:
    """Whether no interval begins before the one ahead of it on its thread ended: calls of CUDA."""
    order = np.argsort(threads, kind="stable")
    same = threads[order[1:]] == threads[order[:-1]]
    return bool((~same | (ends[order[:-1]] <= starts[order[1:]])).all())


def nesting_order(starts: Integers, ends: Integers, *then: Integers) -> Integers:
    """The order that `parents` needs: by start, of those that start at once outer ones first.

    Those that end at once too are in the order of the numbers `then`. Quick where the intervals are
    nearly in order, as those of a few threads or tables one after the other.
    """
    order = np.argsort(starts, kind="stable")
    ordered = starts[order]
    same = ordered[1:] == ordered[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    keys = (starts[rows], -ends[rows], *(each[rows] for each in then))
    order[tied] = rows[np.lexsort(keys[::-1])]
    return order


def innermost(
    threads: Integers,
    starts: Integers,
    ends: Integers,
    parent: Integers,
    at_threads: Integers,
    at_times: Integers,
) -> Integers:
    """For each point (thread, time) the position of the innermost interval around it, or -1.

    The first four arrays are the intervals as for `parents`, with its result. An interval holds
    its start and not its end.
    """
    arrays = threads, starts, ends, parent, at_threads, at_times
    if compiled is not None:
        found = compiled.innermost(*map(contiguous, arrays))
        # Parents that a capture names itself may stand anywhere.
        if found is not None:
            return np.frombuffer(found, np.int64)
    return innermost_in_python(*arrays)


def innermost_in_python(
    threads: Integers,
    starts: Integers,
    ends: Integers,
    parent: Integers,
    at_threads: Integers,
    at_times: Integers,
) -> Integers:
    """`innermost` without compiled code."""
    result = np.full(len(at_times), NONE, np.int64)
    order = np.argsort(threads, kind="stable")
    values, first = np.unique(threads[order], return_index=True)
    bounds = np.append(first, len(order))
    for value, begin, stop in zip(values, bounds[:-1], bounds[1:], strict=True):
        points = np.flatnonzero(at_threads == value)
        here = order[begin:stop]
        last = np.searchsorted(starts[here], at_times[points], side="right") - 1
        result[points] = np.where(last >= 0, here[last], NONE)
    # The last interval to start may have ended already: then one of its ancestors is it.
    active = np.flatnonzero(result >= 0)
    while len(active):
        candidates = result[active]
        over = ends[candidates] <= at_times[active]
        active = active[over]
        result[active] = parent[candidates[over]]
        active = active[result[active] >= 0]
    return result


def thread_codes(*frames: pl.DataFrame) -> list[Integers]:
    """For each frame one number a row that tells its (process, thread) from all others.

    Equal pairs have equal numbers in all frames.
    """
    if _are_of_one_process(frames):
        # Then threads have numbers already.
        return [_numbers(frame["thread"], _NO_THREAD) for frame in frames]
    pairs = pl.concat([frame.select("process", "thread") for frame in frames])
    known = pairs.unique().with_row_index("code")
    codes = pairs.join(
        known, on=["process", "thread"], how="left", nulls_equal=True, maintain_order="left"
    )["code"].cast(pl.Int64)
    bounds = np.cumsum([frame.height for frame in frames])
    return list(np.split(codes.to_numpy(), bounds[:-1]))


def _are_of_one_process(frames: Iterable[pl.DataFrame]) -> bool:
    """Whether all rows name the same process, or none does."""
    columns = [frame["process"] for frame in frames if frame.height]
    named = {edge for column in columns for edge in (column.min(), column.max())}
    nulls = sum(column.null_count() for column in columns)
    return len(named) <= 1 and nulls in (0, sum(map(len, columns)))


def ends_of(intervals: pl.DataFrame) -> Integers:
    """When each of `intervals` ends, `NEVER` where it was not closed."""
    return _numbers(intervals["end_ns"], NEVER)


def _numbers(column: pl.Series, unknown: int) -> Integers:
    """`column` as it lies in memory, copied only where something in it is unknown."""
    known = column.cast(pl.Int64)
    numbers: Integers = (known.fill_null(unknown) if known.null_count() else known).to_numpy()
    return numbers


def enclosing(
    intervals: pl.DataFrame, points: pl.DataFrame, time: str, parent: Integers | None = None
) -> Integers:
    """For each row of `points` the row in `intervals` of the innermost one around it, or -1.

    Both have columns process and thread. A point is at its column `time`; an interval reaches from
    start_ns to end_ns (null: it was never closed). The rows are sorted as `parents` needs them,
    whose result `parent` is.
    """
    if points.is_empty() or intervals.is_empty():
        return np.full(points.height, NONE, np.int64)
    threads, at_threads = thread_codes(intervals, points)
    starts = intervals["start_ns"].to_numpy()
    ends = ends_of(intervals)
    if parent is None:
        parent = parents(threads, starts, ends)
    return innermost(threads, starts, ends, parent, at_threads, points[time].to_numpy())
