"""How long the program's ranges were open, with and without device work, and what ran in them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from gpuprof.collectors import host_events
from gpuprof.collectors.call_tree.nesting import NONE, Integers, parents, thread_codes
from gpuprof.collectors.capture import Capture, once_a_capture
from gpuprof.roofline.intervals import covered_ns, merged, union_ns
from gpuprof.roofline.range_figures import RangeTime, RanInRange
from gpuprof.roofline.work.attribution import steps_at
from gpuprof.roofline.work.op_tree import RangeMembers
from gpuprof.roofline.work.work import Work

# By process and thread.
_OpsOfThreads: TypeAlias = Mapping[tuple[Any, ...], pl.DataFrame]
# Operators named for each range.
_NAMED: Final = 3
# Names in all: a program may give each of its iterations one of its own.
_MOST: Final = 300


def range_times(
    capture: Capture, work: Work, members: Sequence[RangeMembers]
) -> tuple[RangeTime, ...]:
    """One row for each range name of an attributed one-rank capture: 300 at most, longest first.

    `members` is the device work of `work` in them (`range_members`). Ranges that were never closed
    have no length and are left out.
    """
    ranges = (
        capture.ranges.with_row_index("row")
        .filter(pl.col("domain").ne_missing(host_events.DOMAIN) & pl.col("end_ns").is_not_null())
        .sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    )
    if ranges.is_empty():
        return ()
    durations_ns = work.kernels["duration_ns"].to_numpy()
    inside = {(each.name, each.domain): durations_ns[each.kernels] for each in members}
    ran = _on_device(members, work)
    passes = _passes(ranges, capture)
    found = []
    for (name, domain), rows in _longest(passes).group_by("name", "domain", maintain_order=True):
        own_ns = inside.get((str(name), str(domain)), durations_ns[:0])
        recorded = not (capture.kernels.is_empty() or work.lost_launches)
        around = rows["parent"].unique()
        found.append(
            RangeTime(
                name=str(name),
                domain=str(domain),
                passes=rows.height,
                wall_ns=_wall_ns(rows),
                own_ns=int(rows["own_ns"].sum()),
                parent=around[0] or "" if len(around) == 1 else "",
                across_threads=bool(rows["across_threads"].all()),
                device_ns=int(own_ns.sum()) if recorded else None,
                pieces=len(own_ns) if recorded else None,
                ran=ran.get((str(name), str(domain)), ())
                if len(own_ns)
                else _on_host(rows, _outermost(capture)),
            )
        )
    return tuple(sorted(found, key=lambda each: -each.wall_ns))


def _longest(passes: pl.DataFrame) -> pl.DataFrame:
    """Those with any length, of the names with most of it."""
    passes = passes.filter(pl.col("wall_ns") > 0)
    names = (
        passes.group_by("name", "domain", maintain_order=True)
        .agg(pl.col("wall_ns").sum())
        .sort("wall_ns", descending=True, maintain_order=True)
        .head(_MOST)
    )
    return passes.join(names, on=("name", "domain"), how="semi", maintain_order="left")


def _passes(ranges: pl.DataFrame, capture: Capture) -> pl.DataFrame:
    """`ranges` on a clock that runs in the profiled steps only, with lengths and parents."""
    starts, ends = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    steps = capture.steps.filter(pl.col("phase") == "profiled")
    if steps.height:
        windows = merged(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())
        starts, ends = covered_ns(windows, starts), covered_ns(windows, ends)
    wall_ns = ends - starts
    across = ranges["across_threads"].fill_null(False).to_numpy()
    above = _parents(ranges, across)
    # What nested passes take of the one around them.
    nested_ns = np.zeros(len(starts), np.int64)
    nested = np.flatnonzero(above != NONE)
    within = np.maximum(np.minimum(ends[nested], ends[above[nested]]) - starts[nested], 0)
    np.add.at(nested_ns, above[nested], within)
    names = ranges["name"].to_numpy()
    (lanes,) = thread_codes(
        ranges.select("process", thread=pl.when(~pl.Series(across)).then("thread"))
    )
    return ranges.select(
        "name",
        "domain",
        "process",
        "thread",
        real_start_ns="start_ns",
        real_end_ns="end_ns",
        start_ns=pl.Series(starts),
        end_ns=pl.Series(ends),
        wall_ns=pl.Series(wall_ns),
        own_ns=pl.Series(wall_ns - nested_ns),
        across_threads=pl.Series(across),
        # Their thread, of start/end pairs their process.
        lane=pl.Series(lanes),
        parent=pl.Series([None if row == NONE else names[row] for row in above], dtype=pl.String),
    )


def _parents(ranges: pl.DataFrame, across: Integers) -> Integers:
    """The row directly around each on its thread; start/end pairs are in none and around none."""
    (threads,) = thread_codes(ranges)
    nested = np.flatnonzero(~across)
    found = np.full(ranges.height, NONE, np.int64)
    starts, ends = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    above = parents(threads[nested], starts[nested], ends[nested])
    found[nested] = np.where(above == NONE, NONE, nested[above])
    return found


def _wall_ns(rows: pl.DataFrame) -> int:
    lanes, starts, ends = (rows[name].to_numpy() for name in ("lane", "start_ns", "end_ns"))
    held = (lanes == lane for lane in np.unique(lanes))
    return sum(union_ns(starts[here], ends[here]) for here in held)


def _on_device(
    members: Sequence[RangeMembers], work: Work
) -> dict[tuple[str, str], tuple[RanInRange, ...]]:
    """By name and domain the operators of the work in each range, those that took longest."""
    if not members:
        return {}
    names = sorted({signature.name for signature in work.signatures})
    numbers = {name: number for number, name in enumerate(names)}
    # Numbers, which are quicker to group by than names.
    operators = pl.Series([numbers[each.name] for each in work.signatures], dtype=pl.Int64)
    rows = np.concatenate([each.kernels for each in members])
    number = np.repeat(np.arange(len(members)), [len(each.kernels) for each in members])
    largest = (
        work.kernels.select("signature", "owner_id", "duration_ns")[rows]
        .with_columns(range=pl.Series(number))
        .filter(pl.col("signature").is_not_null())
        .with_columns(operator=pl.lit(operators).gather(pl.col("signature")))
        .group_by("range", "operator", maintain_order=True)
        .agg(calls=pl.col("owner_id").n_unique(), device_ns=pl.col("duration_ns").sum())
        .sort("device_ns", descending=True, maintain_order=True)
        .group_by("range", maintain_order=True)
        .head(_NAMED)
    )
    found: dict[tuple[str, str], tuple[RanInRange, ...]] = {}
    for index, operator, calls, device_ns in largest.select(
        "range", "operator", "calls", "device_ns"
    ).iter_rows():
        key = members[index].name, members[index].domain
        one = RanInRange(name=names[operator], calls=calls, device_ns=device_ns)
        found[key] = (*found.get(key, ()), one)
    return found


@once_a_capture
def _outermost(capture: Capture) -> _OpsOfThreads:
    """The operators of the profiled steps that no other one called, by thread and time."""
    columns = ("name", "process", "thread", "start_ns", "end_ns")
    ops = (
        capture.ops.select("parent_id", *columns)
        .filter(pl.col("parent_id").is_null() & pl.col("end_ns").is_not_null())
        .select(columns)
    )
    if (capture.steps["phase"] == "profiled").any():
        ops = ops.filter(steps_at(capture, ops["start_ns"]).is_not_null())
    ordered = ops.sort("process", "thread", "start_ns")
    return ordered.partition_by("process", "thread", as_dict=True)


def _on_host(rows: pl.DataFrame, outermost: _OpsOfThreads) -> tuple[RanInRange, ...]:
    """The outermost operators that began in any pass on its thread, by how long they took."""
    found = []
    for thread, here in rows.group_by("process", "thread", maintain_order=True):
        ops = outermost.get(thread)
        if ops is None:
            continue
        begin, end = merged(here["real_start_ns"].to_numpy(), here["real_end_ns"].to_numpy())
        first = np.searchsorted(ops["start_ns"].to_numpy(), begin)
        last = np.searchsorted(ops["start_ns"].to_numpy(), end)
        inside = np.zeros(ops.height + 1, np.int64)
        np.add.at(inside, first, 1)
        np.add.at(inside, last, -1)
        found.append(ops.filter(pl.Series(np.cumsum(inside)[:-1] > 0, dtype=pl.Boolean)))
    if not found:
        return ()
    largest = (
        pl.concat(found)
        .group_by("name", maintain_order=True)
        .agg(
            calls=pl.len(),
            host_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        )
        .sort("host_ns", descending=True, maintain_order=True)
        .head(_NAMED)
    )
    return tuple(
        RanInRange(name=name, calls=calls, host_ns=host_ns)
        for name, calls, host_ns in largest.iter_rows()
    )
