"""What the threads of the host are in while the device has no work."""

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, Integers, enclosing
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.idle.gaps import Gaps
from gpuprof.roofline.idle.host_timeline import Changes, HostTimeline, innermost_rows
from gpuprof.roofline.work.attribution import rows_of
from gpuprof.roofline.work.names import values_at


def threads_of_gaps(
    gaps: Gaps, kernels: pl.DataFrame, launch: Integers, capture: Capture, *, on_cpu: bool
) -> pl.DataFrame:
    """For each gap the threads to look at, in this order: thread_0, thread_1, thread_2.

    That which ends the gap, that which launched the work before, and the one with most events.
    """
    events = capture.ops if on_cpu else capture.launches
    rows = rows_of(capture.ops, kernels["op_id"]) if on_cpu else launch
    ends = np.where(gaps.kernel == NONE, NONE, rows[gaps.kernel]) if len(rows) else gaps.kernel
    previous = np.where(gaps.kernel == NONE, len(rows), gaps.kernel) - 1
    before = np.where(previous >= 0, rows[previous], NONE) if len(rows) else gaps.kernel
    counted = pl.concat([capture.ops.select("thread"), capture.launches.select("thread")])
    main = counted["thread"].drop_nulls().mode().sort()
    most = main[0] if len(main) else None
    threads = events["thread"]
    chosen = [
        threads.gather(np.maximum(row, 0)).set(pl.Series(row == NONE), None)
        if len(threads)
        else pl.repeat(None, len(row), dtype=pl.Int64, eager=True)
        for row in (ends, before)
    ]
    with_most = pl.lit(most, pl.Int64)
    return pl.DataFrame({"thread_0": chosen[0], "thread_1": chosen[1]}).with_columns(
        pl.coalesce("thread_0", with_most),
        pl.coalesce("thread_1", with_most),
        thread_2=with_most,
        process=pl.lit(_process(events), pl.Int64),
    )


def _process(events: pl.DataFrame) -> int | None:
    """The one process of a rank."""
    known = events["process"].drop_nulls().mode().sort()
    return int(known[0]) if len(known) else None


def with_states(
    segments: pl.DataFrame, threads: pl.DataFrame, timeline: HostTimeline, changes: Changes
) -> pl.DataFrame:
    """What the first of a segment's `threads` that is in anything is in: rows, -1 for none."""
    count = segments.height
    chosen = {
        name: np.full(count, NONE, np.int64)
        for name in ("call", "op_row", "scope_row", "range_row")
    }
    points = threads.select("process").with_columns(segments["time_ns"])
    numbers = [threads[f"thread_{number}"] for number in range(3)]
    known = [thread.is_not_null().to_numpy() for thread in numbers]
    of_threads = [thread.fill_null(NONE).to_numpy() for thread in numbers]
    # The thread that it is in, the first one where that is none.
    own, is_known = of_threads[0].copy(), known[0].copy()
    pending = np.ones(count, np.bool_)
    for number, thread in enumerate(of_threads):
        asked = pending & known[number]
        for earlier in range(number):
            # In nothing, as was found already.
            asked &= ~known[earlier] | (of_threads[earlier] != thread)
        rows = np.flatnonzero(asked)
        if not len(rows):
            continue
        at = points[rows].with_columns(thread=pl.Series(thread[rows]))
        found = {
            "call": innermost_rows(timeline.launches, at),
            "op_row": enclosing(timeline.ops, at, "time_ns", timeline.op_parents),
            "scope_row": innermost_rows(timeline.scopes, at),
            "range_row": innermost_rows(timeline.idle_ranges, at),
        }
        occupied = np.any([row != NONE for row in found.values()], axis=0)
        inside = rows[occupied]
        for name, row in found.items():
            chosen[name][inside] = row[occupied]
        pending[inside] = False
        own[inside], is_known[inside] = thread[inside], True
    op, call = chosen["op_row"], chosen.pop("call")
    at = points.with_columns(thread=pl.Series(own).set(pl.Series(~is_known), None))
    launched = timeline.launches["launch_row"].cast(pl.Int64).to_numpy()
    return segments.with_columns(
        pl.Series("quiet_ns", _quiet_ns(changes, own, segments["time_ns"].to_numpy())),
        *(
            pl.Series(name, row).set(pl.Series(row == NONE), None)
            for name, row in {
                "call_row": values_at(launched, call),
                "root_row": values_at(timeline.op_roots, op),
                **chosen,
                "around_row": innermost_rows(timeline.ranges, at),
                "position_row": positions_at(timeline, at),
            }.items()
        ),
    )


def positions_at(timeline: HostTimeline, points: pl.DataFrame) -> Integers:
    """Where the program is at each of `points`, or where it waits for the thread there."""
    own = innermost_rows(timeline.positions, points)
    followed = timeline.positions.select("process", "thread").unique()
    if followed.height != 1:
        return own
    (there,) = followed.iter_rows(named=True)
    elsewhere = points.with_columns(
        pl.lit(value, pl.Int64).alias(name) for name, value in there.items()
    )
    return np.where(own == NONE, innermost_rows(timeline.positions, elsewhere), own)


def _quiet_ns(changes: Changes, threads: Integers, times_ns: Integers) -> Integers:
    """How long the thread of each time does nothing that was recorded around it."""
    quiet = np.zeros(len(times_ns), np.int64)
    for thread in np.unique(threads).tolist():
        of_thread = changes.of_thread(thread)
        rows = np.flatnonzero(threads == thread)
        after = np.searchsorted(of_thread, times_ns[rows], side="right")
        between = (after > 0) & (after < len(of_thread))
        quiet[rows[between]] = of_thread[after[between]] - of_thread[after[between] - 1]
    return quiet
