"""How long the program's ranges were open, with and without device work, and what ran in them."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors import host_events
from gpuprof.collectors.call_tree.nesting import NONE, Integers, parents, thread_codes
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.intervals import covered_ns, merged, union_ns
from gpuprof.roofline.range_figures import RangeTime, RanInRange
from gpuprof.roofline.work.attribution import steps_at
from gpuprof.roofline.work.op_tree import RangeMembers
from gpuprof.roofline.work.work import Work

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
    outermost = _outermost(capture)
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
                else _on_host(rows, outermost),
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
    total_ns = 0
    for _, here in rows.with_columns(
        pl.when("across_threads").then(None).otherwise("thread").alias("thread")
    ).group_by("process", "thread"):
        total_ns += union_ns(here["start_ns"].to_numpy(), here["end_ns"].to_numpy())
    return total_ns


def _on_device(
    members: Sequence[RangeMembers], work: Work
) -> dict[tuple[str, str], tuple[RanInRange, ...]]:
    """By name and domain the operators of the work in each range, those that took longest."""
    names: Mapping[int, str] = {
        index: signature.name for index, signature in enumerate(work.signatures)
    }
    if not members:
        return {}
    rows = np.concatenate([each.kernels for each in members])
    number = np.repeat(np.arange(len(members)), [len(each.kernels) for each in members])
    largest = (
        work.kernels.select("signature", "owner_id", "duration_ns")[rows]
        .with_columns(range=pl.Series(number))
        .filter(pl.col("signature").is_not_null())
        .with_columns(operator=pl.col("signature").replace_strict(names, return_dtype=pl.String))
        .group_by("range", "operator", maintain_order=True)
        .agg(calls=pl.col("owner_id").n_unique(), device_ns=pl.col("duration_ns").sum())
        .sort("device_ns", descending=True, maintain_order=True)
        .group_by("range", maintain_order=True)
        .head(_NAMED)
    )
    found: dict[tuple[str, str], tuple[RanInRange, ...]] = {}
    for index, name, calls, device_ns in largest.select(
        "range", "operator", "calls", "device_ns"
    ).iter_rows():
        key = members[index].name, members[index].domain
        one = RanInRange(name=name, calls=calls, device_ns=device_ns)
        found[key] = (*found.get(key, ()), one)
    return found


def _outermost(capture: Capture) -> pl.DataFrame:
    """The operators of the profiled steps that no other one called, by thread and time."""
    ops = capture.ops.filter(pl.col("parent_id").is_null() & pl.col("end_ns").is_not_null())
    if (capture.steps["phase"] == "profiled").any():
        ops = ops.filter(steps_at(capture, ops["start_ns"]).is_not_null())
    ops = ops.select("name", "process", "thread", "start_ns", "end_ns")
    return ops.sort("process", "thread", "start_ns")


def _on_host(rows: pl.DataFrame, outermost: pl.DataFrame) -> tuple[RanInRange, ...]:
    """The outermost operators that began in any pass on its thread, by how long they took."""
    found = []
    for (process, thread), here in rows.group_by("process", "thread", maintain_order=True):
        ops = outermost.filter(
            pl.col("process").eq_missing(process) & pl.col("thread").eq_missing(thread)
        )
        begin, end = merged(here["real_start_ns"].to_numpy(), here["real_end_ns"].to_numpy())
        first = np.searchsorted(ops["start_ns"].to_numpy(), begin)
        last = np.searchsorted(ops["start_ns"].to_numpy(), end)
        inside = np.zeros(ops.height + 1, np.int64)
        np.add.at(inside, first, 1)
        np.add.at(inside, last, -1)
        found.append(ops.filter(pl.Series(np.cumsum(inside)[:-1] > 0, dtype=pl.Boolean)))
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
