"""What the threads of a process were in at any time: calls, operators and ranges."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors import host_events
from gpuprof.collectors.call_tree.inheriting import UNKNOWN, inherit
from gpuprof.collectors.call_tree.nesting import (
    NONE,
    Integers,
    enclosing,
    ends_of,
    nesting_order,
    parents,
    thread_codes,
)
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.classes import GARBAGE_COLLECTION
from gpuprof.roofline.idle.host_work import kind_of_scope
from gpuprof.roofline.intervals import are_in_order, merged
from gpuprof.roofline.work.attribution import parent_rows
from gpuprof.roofline.work.names import op_names

_EDGES: Final = ("start_ns", "end_ns")
_TIMES: Final = ("thread", *_EDGES)
_EVENT: Final = ("process", *_TIMES, "name")


@dataclass(frozen=True)
class HostTimeline:
    """The events of a one-rank capture's host.

    `ops` has the capture's rows in their order. Each other table is in the order that nesting
    needs, with the row of the innermost one around each in its column parent; `launches` has no
    more than that, its times and the column launch_row.
    """

    launches: pl.DataFrame
    ops: pl.DataFrame
    # For each operator the rows of its parent and of the outermost one around it.
    op_parents: Integers
    op_roots: Integers
    # The outermost operators and ranges whose class is that of all that is done in them: columns
    # kind and host_event.
    scopes: pl.DataFrame
    # Where the program was, and its ranges.
    positions: pl.DataFrame
    ranges: pl.DataFrame
    # The outermost of them in which nothing was launched.
    idle_ranges: pl.DataFrame
    # When any thread collects garbage, which stops the others.
    collecting: tuple[Integers, Integers]
    # When any thread is in an operator, a call or a scope.
    occupied: tuple[Integers, Integers]
    # Nothing was recorded of the host.
    is_empty: bool


@dataclass(frozen=True)
class Changes:
    """When anything on the host begins or ends.

    Apart from the timeline: they are needed for less long.
    """

    # All of them, ascending.
    all_ns: Integers
    # What threads were in.
    intervals: Sequence[pl.DataFrame]

    def of_thread(self, thread: int) -> Integers:
        """Those of one thread, ascending."""
        own = [(frame, (frame["thread"] == thread).fill_null(False)) for frame in self.intervals]
        return _ascending(frame[edge].filter(here) for frame, here in own for edge in _EDGES)


def host_timeline(
    capture: Capture, launches_ns: Integers, *, least_idle_ns: int
) -> tuple[HostTimeline, Changes]:
    """The timeline of `capture`, with those idle ranges that last for `least_idle_ns` or longer.

    `launches_ns` is when device work was launched, on a CPU when leaf operators began.
    """
    launches = _nested(capture.launches.select("process", *_TIMES).with_row_index("launch_row"))
    ops = capture.ops
    op_parents = parent_rows(capture)
    scopes = _scopes(capture)
    collecting = scopes.filter(pl.col("kind") == GARBAGE_COLLECTION)
    ranges = capture.ranges.filter((pl.col("domain") != host_events.DOMAIN).fill_null(True))
    idle = _idle_ranges(ranges, launches_ns, least_idle_ns)
    occupied = [_ended(frame) for frame in (ops, launches, scopes)]
    placed = capture.positions
    changes = _changes([*occupied, idle], placed)
    timeline = HostTimeline(
        launches=launches,
        ops=ops,
        op_parents=op_parents,
        op_roots=_roots(op_parents),
        scopes=_outermost(scopes.filter(pl.col("kind") != GARBAGE_COLLECTION)),
        positions=_nested(placed),
        ranges=_nested(ranges),
        idle_ranges=idle,
        collecting=_merged([collecting]),
        # Each table by itself first: its rows are nearly in order, and few of them are outer ones.
        occupied=_merged(occupied),
        is_empty=not len(changes.all_ns),
    )
    return timeline, changes


def innermost_rows(intervals: pl.DataFrame, points: pl.DataFrame) -> Integers:
    """For each of `points` (process, thread, time_ns) the innermost of `intervals`, or -1."""
    return enclosing(intervals, points, "time_ns", intervals["parent"].to_numpy())


def within(disjoint: tuple[Integers, Integers], times_ns: Integers) -> Integers:
    """For each time the number of the interval that holds it, -1 for none."""
    start, end = disjoint
    row = np.searchsorted(start, times_ns, side="right") - 1
    inside = (row >= 0) & (times_ns < np.append(end, 0)[row])
    return np.where(inside, row, NONE)


def _nested(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` in the order of nesting, with the row of each one's parent."""
    nested = frame
    starts, ends = frame["start_ns"].to_numpy(), ends_of(frame)
    if not are_in_order(starts, ends):
        nested = frame[nesting_order(starts, ends)]
    (threads,) = thread_codes(nested)
    found = parents(threads, nested["start_ns"].to_numpy(), ends_of(nested))
    return nested.with_columns(parent=pl.Series(found, dtype=pl.Int64))


def _ended(frame: pl.DataFrame) -> pl.DataFrame:
    """The times of those rows of `frame` that have an end."""
    return frame.select(_TIMES).drop_nulls("end_ns")


def _merged(frames: Iterable[pl.DataFrame]) -> tuple[Integers, Integers]:
    """The times that any row of `frames` covers, as intervals that do not touch."""
    parts = [merged(*(frame[edge].to_numpy() for edge in _EDGES)) for frame in frames]
    start, end = (np.concatenate(edges) for edges in zip(*parts, strict=True))
    return merged(start, end)


def _changes(frames: Sequence[pl.DataFrame], placed: pl.DataFrame) -> Changes:
    edges = [frame[edge] for frame in frames for edge in _EDGES]
    return Changes(_ascending([*edges, placed["start_ns"], pl.Series(ends_of(placed))]), frames)


def _ascending(times: Iterable[pl.Series]) -> Integers:
    """All `times` in order."""
    found: Integers = np.concatenate([each.to_numpy() for each in times])
    found.sort()
    return found


def _roots(op_parents: Integers) -> Integers:
    """The outermost row above each, itself where it has no parent."""
    numbers = np.arange(1, len(op_parents) + 1)
    return inherit(np.where(op_parents == NONE, numbers, UNKNOWN), op_parents) - 1


def _scopes(capture: Capture) -> pl.DataFrame:
    """The operators and ranges whose class is that of all that is done in them."""
    names = op_names(capture)
    kinds = [kind_of_scope(name, "") for name in names.texts]
    rows = np.flatnonzero(names.where(np.array([kind is not None for kind in kinds], np.bool_)))
    of_rows = [kinds[number] for number in names.numbers[rows].tolist()]
    ops = capture.ops.select(_EVENT)[rows].with_columns(
        domain=pl.lit(""),
        host_event=pl.lit(None, pl.String),
        kind=pl.Series(of_rows, dtype=pl.String),
    )
    ranges = capture.ranges.select(*_EVENT, pl.col("domain").fill_null(""), "host_event")
    named = ranges.select("name", "domain").unique().drop_nulls("name")
    known = named.with_columns(
        kind=pl.Series([kind_of_scope(*row) for row in named.iter_rows()], dtype=pl.String)
    ).drop_nulls("kind")
    return pl.concat(
        [ops, ranges.join(known, on=("name", "domain"), how="inner", maintain_order="left")]
    )


def _outermost(frame: pl.DataFrame) -> pl.DataFrame:
    """Those rows of `frame` that lie in no other of their thread, as `_nested` gives them."""
    return _nested(_nested(frame).filter(pl.col("parent") == NONE).drop("parent"))


def _idle_ranges(ranges: pl.DataFrame, launches_ns: Integers, least_ns: int) -> pl.DataFrame:
    """The outermost of `ranges` on their thread in which no thread launched anything.

    What a range calls may launch from another thread, as a backward pass does.
    """
    long = ranges.drop_nulls("end_ns").filter(pl.col("end_ns") - pl.col("start_ns") >= least_ns)
    times = np.sort(launches_ns)
    first, last = (np.searchsorted(times, long[edge].to_numpy()) for edge in ("start_ns", "end_ns"))
    idle = long.filter(pl.Series(first == last, dtype=pl.Boolean))
    return _outermost(idle)
