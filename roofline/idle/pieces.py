"""The time without device work in pieces, each with the one thing that the host did meanwhile."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors import freed_memory
from gpuprof.collectors.call_tree.nesting import NONE, Integers, enclosing
from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.classes import (
    COMPILATION,
    GARBAGE_COLLECTION,
    HOST_WORK,
    LAUNCH,
    OUTSIDE,
    QUEUED,
    SYNCHRONISATION,
    UNEXPLAINED,
)
from gpuprof.roofline.idle.gaps import Gaps, find_gaps, work_of_stretch
from gpuprof.roofline.idle.host_calls import drained_ns, kinds_of_calls, synchronisations
from gpuprof.roofline.idle.host_states import positions_at, threads_of_gaps, with_states
from gpuprof.roofline.idle.host_timeline import (
    Changes,
    HostTimeline,
    host_timeline,
    within,
)
from gpuprof.roofline.idle.host_work import builds_plans
from gpuprof.roofline.intervals import merged
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.attribution import launch_rows, rows_of
from gpuprof.roofline.work.names import NumberedNames, launch_names, op_names, values_at
from gpuprof.roofline.work.work import Work

# A range without launches is work of its own from so long on: some ten launches. Optimizers name
# theirs for zeroing gradients, which takes less.
_LEAST_RANGE_NS: Final = 100_000
# Python between two calls takes some 10 us, and so does an operator; what does nothing that is
# recorded for so long does something else than launching.
_LEAST_WORK_NS: Final = 1_000_000


@dataclass(frozen=True)
class IdlePieces:
    """The pieces, and what their rows point into.

    Columns of `pieces`: step (its number), start_ns (on the device), nanoseconds, kind, keeps (as
    long without the profiler), drained (after the call and not in it), gap, hole, and rows of
    tables or null: call_row (launches), op_row (ops, the innermost one), root_row (ops, the
    outermost one), and of `timeline` scope_row, range_row (idle_ranges), around_row (ranges, the
    innermost one) and position_row.
    """

    pieces: pl.DataFrame
    timeline: HostTimeline
    # The class of each row of `launches`; null for calls that only launch or ask.
    calls: pl.Series
    gaps: Gaps
    # In order of start, `gaps.kernel` are rows of it, and the rows of `ops` that launched each.
    kernels: pl.DataFrame
    launching_ops: Integers


def idle_pieces(capture: Capture, work: Work, stretch: Stretch, *, on_cpu: bool) -> IdlePieces:
    """All time of `stretch` in which no device of an attributed one-rank capture has work.

    On a CPU the work is leaf operators, and what begins one is its thread.
    """
    kernels = work_of_stretch(work, stretch)
    launch = launch_rows(capture)[kernels["kernel_row"].to_numpy()]
    gaps = find_gaps(kernels, launch, capture, stretch)
    calls = kinds_of_calls(capture)
    timeline, changes = host_timeline(
        capture, _launches_ns(kernels, launch, capture), least_idle_ns=_LEAST_RANGE_NS
    )
    freed_memory.give_back()
    threads = threads_of_gaps(gaps, kernels, launch, capture, on_cpu=on_cpu)
    pieces = _of_the_host(capture, stretch, gaps, timeline, changes, threads, calls, on_cpu=on_cpu)
    del changes, threads
    freed_memory.give_back()
    if not on_cpu:
        busy = merged(kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy())
        from_ns = int(gaps.host_start_ns.min(initial=stretch.spans_ns[-1][1]))
        syncs = synchronisations(capture.launches, calls, busy, from_ns)
        pieces = _with_drained(pieces, _with_operators(syncs, capture, timeline))
    queued = _inside(_queued(gaps), stretch).with_columns(
        kind=pl.lit(QUEUED), keeps=pl.lit(True), drained=pl.lit(False)
    )
    launching = rows_of(capture.ops, kernels["op_id"])
    together = pl.concat([pieces, queued], how="diagonal")
    return IdlePieces(together, timeline, calls, gaps, kernels, launching)


def _of_the_host(
    capture: Capture,
    stretch: Stretch,
    gaps: Gaps,
    timeline: HostTimeline,
    changes: Changes,
    threads: pl.DataFrame,
    calls: pl.Series,
    *,
    on_cpu: bool,
) -> pl.DataFrame:
    """The pieces in which the host has not launched what ends the gap."""
    segments = _inside(_segments(gaps, changes.all_ns), stretch)
    segments = with_states(segments, threads[segments["gap"]], timeline, changes)
    return _classified(segments, timeline, gaps, calls, op_names(capture), on_cpu=on_cpu)


def _launches_ns(kernels: pl.DataFrame, launch: Integers, capture: Capture) -> Integers:
    """When the host launched work, also into a CUDA graph; on a CPU when operators began."""
    unknown = kernels["start_ns"].to_numpy()[launch == NONE]
    calls = capture.launches["start_ns"].to_numpy()
    names = launch_names(capture)
    launching = names.where(names.texts.str.contains("Launch", literal=True).to_numpy())
    return np.concatenate([unknown, calls[launch[launch != NONE]], calls[launching]])


def _segments(gaps: Gaps, changes_ns: Integers) -> pl.DataFrame:
    """The host's part of each gap, cut wherever anything begins or ends on the host.

    Columns gap, time_ns (the host's), start_ns and end_ns (the device's).
    """
    first_ns, last_ns = gaps.host_start_ns, gaps.host_end_ns
    low = np.searchsorted(changes_ns, first_ns, side="right")
    cuts = np.maximum(np.searchsorted(changes_ns, last_ns, side="left") - low, 0)
    counts = np.where(last_ns > first_ns, cuts + 1, 0)
    gap = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(gap)) - np.repeat(np.cumsum(counts) - counts, counts)
    edges = np.append(changes_ns, 0)
    at = low[gap] + number
    start = np.where(number == 0, first_ns[gap], edges[np.minimum(at, len(edges)) - 1])
    end = np.where(number == cuts[gap], last_ns[gap], edges[np.minimum(at, len(edges) - 1)])
    shift = gaps.shift_ns[gap]
    return pl.DataFrame(
        {"gap": gap, "time_ns": start, "start_ns": start + shift, "end_ns": end + shift}
    )


def _queued(gaps: Gaps) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "gap": np.arange(len(gaps.start_ns)),
            "start_ns": gaps.queued_ns,
            "end_ns": gaps.end_ns,
        }
    )


def _inside(segments: pl.DataFrame, stretch: Stretch) -> pl.DataFrame:
    """What of `segments` lies in each step of `stretch`, with its length and the step's number.

    `start_ns` is where that part begins.
    """
    first, last = np.array(stretch.spans_ns, np.int64).T
    # Marks may overlap by what a clock rounds.
    first = np.maximum(first, np.concatenate([first[:1], np.maximum.accumulate(last)[:-1]]))
    start, end = (segments[edge].to_numpy() for edge in ("start_ns", "end_ns"))
    low = np.searchsorted(last, start, side="right")
    counts = np.maximum(np.searchsorted(first, end, side="left") - low, 0)
    row = np.repeat(np.arange(len(counts)), counts)
    step = low[row] + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.maximum(start[row], first[step])
    length = np.minimum(end[row], last[step]) - begins
    return (
        segments[row]
        .with_columns(
            step=pl.Series(step),
            start_ns=pl.Series(begins, dtype=pl.Int64),
            nanoseconds=pl.Series(length, dtype=pl.Int64),
        )
        .filter(pl.col("nanoseconds") > 0)
        .drop("end_ns")
    )


def _classified(
    segments: pl.DataFrame,
    timeline: HostTimeline,
    gaps: Gaps,
    calls: pl.Series,
    ops: NumberedNames,
    *,
    on_cpu: bool,
) -> pl.DataFrame:
    times = segments["time_ns"].to_numpy()
    hole, hole_ns = _holes(timeline.occupied, times, gaps)
    gap = segments["gap"].to_numpy()
    unknown = (gaps.launch[gap] == NONE) & (gaps.kernel[gap] != NONE) & (not on_cpu)
    columns = segments.with_columns(
        collected=pl.Series(within(timeline.collecting, times) != NONE),
        scope=_gathered(timeline.scopes["kind"], segments["scope_row"]),
        call=_gathered(calls, segments["call_row"]),
        plan=pl.Series(_plans(ops, segments["op_row"].fill_null(NONE).to_numpy())),
        hole=pl.Series(hole),
        hole_ns=pl.Series(hole_ns),
        unknown=pl.Series(unknown | timeline.is_empty),
    )
    in_nothing = pl.col("op_row").is_null() & pl.col("call_row").is_null()
    working = ~in_nothing & (pl.col("quiet_ns") >= _LEAST_WORK_NS)
    elsewhere = in_nothing & (pl.col("hole_ns") >= _LEAST_WORK_NS)
    kind = (
        # What is compiled or loaded makes garbage.
        pl.when(pl.col("scope").is_not_null())
        .then("scope")
        .when(pl.col("collected"))
        .then(pl.lit(GARBAGE_COLLECTION))
        .when(pl.col("call").is_not_null())
        .then("call")
        .when(in_nothing & pl.col("unknown"))
        .then(pl.lit(UNEXPLAINED))
        .when(working & pl.col("plan") & pl.col("call_row").is_null())
        .then(pl.lit(COMPILATION))
        .when(working | elsewhere | pl.col("range_row").is_not_null())
        .then(pl.lit(HOST_WORK))
        .otherwise(pl.lit(OUTSIDE if on_cpu else LAUNCH))
    )
    return columns.select(
        "gap",
        "step",
        "time_ns",
        "start_ns",
        "nanoseconds",
        "call_row",
        "op_row",
        "root_row",
        "scope_row",
        "range_row",
        "around_row",
        "position_row",
        "hole",
        kind=kind,
        keeps=kind != LAUNCH,
        drained=pl.lit(False),
    )


def _holes(
    occupied: tuple[Integers, Integers], times_ns: Integers, gaps: Gaps
) -> tuple[Integers, Integers]:
    """For each time the number of the hole between `occupied` times it is in, and its length."""
    if not len(times_ns):
        return times_ns, times_ns
    start, end = occupied
    first, last = gaps.host_start_ns.min(), gaps.host_end_ns.max()
    number = np.searchsorted(start, times_ns, side="right")
    begins = np.maximum(np.concatenate([[first], end])[number], first)
    ends = np.minimum(np.append(start, last)[number], last)
    return number, np.maximum(ends - begins, 0)


def _plans(ops: NumberedNames, op_rows: Integers) -> Booleans:
    """Whether the library behind the operator of each row builds plans."""
    found = ops.at(op_rows)
    return found.where(np.array([builds_plans(name) for name in found.texts], np.bool_))


def _gathered(values: pl.Series, rows: pl.Series) -> pl.Series:
    """`values` at `rows`, null where a row is."""
    if values.is_empty():
        return pl.repeat(None, len(rows), dtype=values.dtype, eager=True)
    return values.gather(rows.fill_null(0)).set(rows.is_null(), None)


def _with_operators(calls: pl.DataFrame, capture: Capture, timeline: HostTimeline) -> pl.DataFrame:
    """`calls` with the rows op_row and root_row of the operators around them, and position_row."""
    at = capture.launches.select("process", "thread", time_ns="start_ns")[calls["launch_row"]]
    op = enclosing(timeline.ops, at, "time_ns", timeline.op_parents)
    root = values_at(timeline.op_roots, op)
    found = {"op_row": op, "root_row": root, "position_row": positions_at(timeline, at)}
    return calls.with_columns(
        pl.Series(name, row).set(pl.Series(row == NONE), None) for name, row in found.items()
    )


def _with_drained(pieces: pl.DataFrame, syncs: pl.DataFrame) -> pl.DataFrame:
    """`pieces`, of what delays launches that apart which comes of a synchronisation.

    Slow launches, and Python that no range names: a range says itself what to move elsewhere.
    """
    if syncs.is_empty():
        return pieces
    plain = pl.all_horizontal(pl.col("op_row", "call_row", "range_row").is_null())
    delays = (pl.col("kind") == LAUNCH) | ((pl.col("kind") == HOST_WORK) & plain)
    is_slow = pieces.select(delays).to_series()
    rows = np.flatnonzero(is_slow.to_numpy())
    times_ns, lengths_ns = (pieces[name].to_numpy() for name in ("time_ns", "nanoseconds"))
    rows = rows[np.argsort(times_ns[rows], kind="stable")]
    explained, call = drained_ns(
        lengths_ns[rows],
        times_ns[rows],
        syncs["end_ns"].to_numpy(),
        syncs["waited_ns"].to_numpy(),
    )
    some, more = explained > 0, explained < lengths_ns[rows]
    length = pl.Series(explained[more], dtype=pl.Int64)
    left = pieces[rows[more]].with_columns(
        start_ns=pl.col("start_ns") + length, nanoseconds=pl.col("nanoseconds") - length
    )
    drained = pieces[rows[some]].with_columns(
        nanoseconds=pl.Series(explained[some], dtype=pl.Int64),
        kind=pl.lit(SYNCHRONISATION),
        drained=pl.lit(True),
        **{
            name: syncs[column].gather(call[some])
            for name, column in (
                ("call_row", "launch_row"),
                ("op_row", "op_row"),
                ("root_row", "root_row"),
                ("position_row", "position_row"),
            )
        },
    )
    return pl.concat([pieces.filter(~is_slow), left, drained])
