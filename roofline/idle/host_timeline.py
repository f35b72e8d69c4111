"""What the threads of a process were in at any time: calls, operators and ranges."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors import host_events
from gpuprof.collectors.call_tree.inheriting import UNKNOWN, inherit
from gpuprof.collectors.call_tree.nesting import (
    NEVER,
    NONE,
    Integers,
    enclosing,
    parents,
    thread_codes,
)
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.classes import GARBAGE_COLLECTION
from gpuprof.roofline.idle.host_work import kind_of_scope
from gpuprof.roofline.intervals import merged
from gpuprof.roofline.work.attribution import rows_of

_TIMES: Final = ("thread", "start_ns", "end_ns")
_EVENT: Final = ("process", *_TIMES, "name")


@dataclass(frozen=True)
class HostTimeline:
    """The events of a one-rank capture's host.

    `ops` has the capture's rows in their order. Each other table is in the order that nesting
    needs, with the row of the innermost one around each in its column parent; `launches` has the
    column launch_row.
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
    # All times at which anything begins or ends, ascending, and the same of each thread.
    changes_ns: Integers
    changes_of_thread: Mapping[int, Integers]

    def is_empty(self) -> bool:
        """Nothing was recorded of the host."""
        return not len(self.changes_ns)


def host_timeline(capture: Capture, launches_ns: Integers, *, least_idle_ns: int) -> HostTimeline:
    """The timeline of `capture`, with those idle ranges that last for `least_idle_ns` or longer.

    `launches_ns` is when device work was launched, on a CPU when leaf operators began.
    """
    launches = _nested(capture.launches.with_row_index("launch_row"))
    ops = capture.ops
    op_parents = rows_of(ops, ops["parent_id"])
    scopes = _scopes(ops, capture.ranges)
    collecting = scopes.filter(pl.col("kind") == GARBAGE_COLLECTION)
    ranges = capture.ranges.filter((pl.col("domain") != host_events.DOMAIN).fill_null(True))
    idle = _idle_ranges(ranges, launches_ns, least_idle_ns)
    occupied = pl.concat([frame.select(_TIMES) for frame in (ops, launches, scopes)]).drop_nulls(
        "end_ns"
    )
    changes = pl.concat([occupied, idle.select(_TIMES)])
    return HostTimeline(
        launches=launches,
        ops=ops,
        op_parents=op_parents,
        op_roots=_roots(op_parents),
        scopes=_outermost(scopes.filter(pl.col("kind") != GARBAGE_COLLECTION)),
        positions=_nested(capture.positions),
        ranges=_nested(ranges),
        idle_ranges=idle,
        collecting=_merged(collecting),
        occupied=_merged(occupied),
        changes_ns=_edges(pl.concat([changes, capture.positions.select(_TIMES)])),
        changes_of_thread={
            thread: _edges(own)
            for (thread,), own in changes.drop_nulls("thread").group_by("thread")
        },
    )


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
    nested = frame.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    (threads,) = thread_codes(nested)
    ends = nested["end_ns"].fill_null(NEVER).to_numpy()
    found = parents(threads, nested["start_ns"].to_numpy(), ends)
    return nested.with_columns(parent=pl.Series(found, dtype=pl.Int64))


def _merged(frame: pl.DataFrame) -> tuple[Integers, Integers]:
    return merged(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())


def _edges(frame: pl.DataFrame) -> Integers:
    return np.sort(frame.select("start_ns", "end_ns").to_numpy().astype(np.int64).ravel())


def _roots(op_parents: Integers) -> Integers:
    """The outermost row above each, itself where it has no parent."""
    numbers = np.arange(1, len(op_parents) + 1)
    return inherit(np.where(op_parents == NONE, numbers, UNKNOWN), op_parents) - 1


def _scopes(ops: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    named = pl.concat(
        [
            ops.select(*_EVENT, domain=pl.lit(""), host_event=pl.lit(None, pl.String)),
            ranges.select(*_EVENT, pl.col("domain").fill_null(""), "host_event"),
        ]
    )
    kinds = named.select("name", "domain").unique()
    known = kinds.with_columns(
        kind=pl.Series([kind_of_scope(*row) for row in kinds.iter_rows()], dtype=pl.String)
    ).drop_nulls("kind")
    return named.join(known, on=("name", "domain"), how="inner")


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
