"""Which operator launched each piece of device work, and in which step.

A kernel's launch is the runtime call of its process with its correlation id; its operator is the
innermost one around the start of that call on the calling thread. The kernels of one graph replay
share a launch, and their operators ran when the graph was captured
(`gpuprof.roofline.work.graph_operators`). A kernel belongs to the step in which it was launched,
whenever it ran.
"""

from typing import Final

import numpy as np
import polars as pl
from msgspec import structs

from gpuprof.collectors.call_tree.nesting import NEVER, NONE, Integers, enclosing
from gpuprof.collectors.capture import Capture, once_a_capture
from gpuprof.collectors.manifest import ProcessInfo
from gpuprof.roofline.intervals import begun_by
from gpuprof.roofline.work.cut_off import cut_off_step
from gpuprof.roofline.work.graph_operators import operators_of_replays, without_places
from gpuprof.roofline.work.impossible import launched_later

_LAUNCH_KEY: Final = ("rank", "process", "correlation")

# A stream is an order of execution within these.
_STREAM = ("process", "device", "context", "stream")


def attribute(capture: Capture) -> Capture:
    """`capture` with `op_id` and `step` of its kernels filled, and a cut-off last step marked so.

    A leaf operator or collective of a CPU run keeps its own op_id; its step is where the operator
    started. A kernel without a launch in the capture has no operator and counts to the step in
    which it started itself; how many those are is added to the warnings. Only profiled steps count.

    A rank that is attributed already stays as it is.
    """
    pending = [info.rank for info in capture.processes if not info.attributed]
    if not pending:
        return capture
    parts = []
    all_steps = []
    all_ops = []
    processes = []
    for info in capture.processes:
        # Of a capture of one rank all rows, without a copy of them.
        own = capture.rank(info.rank)
        kernels, steps, ops = own.kernels, own.steps, own.ops
        if not info.attributed:
            kernels, ops, info = _attribute_rank(own, info)
            kernels, steps, info = _without_cut_off_step(kernels, steps, info)
        parts.append(kernels)
        all_steps.append(steps)
        all_ops.append(ops)
        processes.append(info)
    tables = {
        **capture.tables(),
        "kernels": pl.concat(parts),
        "steps": pl.concat(all_steps),
        "ops": pl.concat(all_ops),
    }
    return Capture(capture.manifest, tuple(processes), **tables)


@once_a_capture
def launch_of_kernels(capture: Capture) -> pl.DataFrame:
    """For each row of `kernels`, in order, the thread and start of its launch.

    Columns process, thread, launch_ns; thread and launch_ns are null where the capture holds no
    launch.
    """
    rows = launch_rows(capture)
    row = pl.Series(rows).set(pl.Series(rows == NONE), None)
    launches = capture.launches
    return pl.DataFrame(
        {
            "process": capture.kernels["process"],
            "thread": launches["thread"].gather(row),
            "launch_ns": launches["start_ns"].gather(row),
        }
    )


@once_a_capture
def launch_rows(capture: Capture) -> Integers:
    """For each row of `kernels` the row of its launch in `launches`, -1 where that is not there.

    Where two calls have one correlation id the earlier, outer one counts.
    """
    calls = capture.launches.select(*_LAUNCH_KEY, "start_ns", row=pl.int_range(pl.len())).filter(
        pl.col("correlation").is_not_null()
    )
    kernels = capture.kernels.select(_LAUNCH_KEY)
    if calls.is_empty():
        return np.full(kernels.height, NONE, np.int64)
    ids = calls["correlation"].to_numpy()
    order = np.argsort(ids, kind="stable")
    # Of one process and with ids that differ, as is the rule, calls are found without a join.
    if (np.diff(ids[order]) != 0).all() and _is_of_one_process(calls, kernels):
        wanted = kernels["correlation"].fill_null(NEVER).to_numpy()
        place = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
        found = order[place]
        return np.where(ids[found] == wanted, calls["row"].to_numpy()[found], NONE)
    calls = calls.sort("start_ns", maintain_order=True).unique(
        _LAUNCH_KEY, keep="first", maintain_order=True
    )
    joined = kernels.join(calls, on=_LAUNCH_KEY, how="left", maintain_order="left")
    rows: Integers = joined["row"].fill_null(NONE).to_numpy()
    return rows


def _is_of_one_process(*frames: pl.DataFrame) -> bool:
    both = pl.concat([frame.select("rank", "process") for frame in frames])
    return all(
        not column.null_count() and column.min() == column.max() for column in both.iter_columns()
    )


def steps_at(capture: Capture, times: pl.Series) -> pl.Series:
    """The index of the profiled step of a one-rank capture around each time; null outside."""
    steps = capture.steps.filter(pl.col("phase") == "profiled").sort("start_ns")
    if steps.is_empty() or times.is_empty():
        return pl.repeat(None, len(times), dtype=pl.Int32, eager=True)
    at = times.to_numpy()
    row = begun_by(steps["start_ns"].to_numpy(), at) - 1
    inside = (row >= 0) & (at < steps["end_ns"].to_numpy()[row])
    index: pl.Series = (
        pl.select(pl.when(pl.Series(inside)).then(pl.Series(steps["index"].to_numpy()[row])))
        .to_series()
        .cast(pl.Int32)
    )
    return index


def rows_of(ops: pl.DataFrame, op_ids: pl.Series) -> Integers:
    """The rows in `ops`, of one rank, that hold `op_ids`; -1 for null and for unknown ids."""
    if ops.is_empty():
        return np.full(len(op_ids), NONE, np.int64)
    ids = ops["op_id"].to_numpy()
    known = op_ids.cast(pl.Int64)
    # As it lies in memory, copied only where something in it is unknown.
    wanted: Integers = (known.fill_null(NONE) if known.null_count() else known).to_numpy()
    at = np.clip(wanted, 0, len(ids) - 1)
    if ((at == wanted) & (ids[at] == wanted))[wanted != NONE].all():
        # As traces are numbered: the id is the row.
        return wanted
    order = np.argsort(ids, kind="stable")
    place = np.searchsorted(ids, wanted, sorter=order)
    rows = order[np.minimum(place, len(ids) - 1)]
    return np.where(ids[rows] == wanted, rows, NONE)


@once_a_capture
def parent_rows(capture: Capture) -> Integers:
    """For each row of `ops` of a one-rank capture that of its parent, -1 for none."""
    return rows_of(capture.ops, capture.ops["parent_id"])


def of_operators(ops: pl.DataFrame, op_ids: pl.Series, *columns: str) -> pl.DataFrame:
    """`columns` of the rows in `ops`, of one rank, that hold `op_ids`; null for all others.

    The same as a join to `ops`, most of whose rows no device work is of.
    """
    rows = rows_of(ops, op_ids)
    known = pl.Series(rows).set(pl.Series(rows == NONE), None)
    return ops.select(pl.col(columns).gather(known))


def _attribute_rank(
    capture: Capture, info: ProcessInfo
) -> tuple[pl.DataFrame, pl.DataFrame, ProcessInfo]:
    """The kernels and operators of a one-rank capture, and what it says of itself."""
    kernels, ops = capture.kernels, capture.ops
    launch = launch_of_kernels(capture)
    launched = launch["launch_ns"].is_not_null()
    points = launch.filter(launched)
    rows = np.full(kernels.height, NONE, np.int64)
    rows[launched.to_numpy()] = enclosing(ops, points, "launch_ns", parent_rows(capture))
    known = pl.Series(rows != NONE)
    op_ids = pl.Series(ops["op_id"].to_numpy()[rows]) if ops.height else kernels["op_id"]
    is_leaf = kernels["kind"] == "op"
    told = kernels["op_id"].is_not_null()
    times = launch["launch_ns"].fill_null(_called_ns(kernels, ops)).fill_null(kernels["start_ns"])
    earlier = _launched_before_the_capture(kernels, launched)
    result = kernels.with_columns(
        op_id=pl.when(known & ~is_leaf).then(op_ids).otherwise("op_id"),
        step=pl.when(~earlier).then(steps_at(capture, times)),
    )
    learned, stand_ins = without_places(operators_of_replays(capture), ops)
    result = _with_operators_of_replays(result, learned)
    missing = int((~launched & ~is_leaf & ~told & ~earlier).sum())
    warnings = info.warnings
    if earlier.any():
        warnings += (
            f"{earlier.sum()} pieces of device work were launched before the recording began: "
            "they belong to no step.",
        )
    early = launched_later(kernels["start_ns"], launch["launch_ns"])
    if early:
        warnings += (early,)
    # A source that records neither launches nor operators has no kernel that lacks them.
    if missing and not (capture.launches.is_empty() and ops.is_empty()):
        warnings += (
            f"{missing} of {kernels.height} pieces of device work have no launch in the capture: "
            "their operators are unknown.",
        )
    if stand_ins.height:
        ops = pl.concat([ops, stand_ins]).sort(
            "start_ns", "end_ns", "op_id", descending=[False, True, False], maintain_order=True
        )
    return result, ops, structs.replace(info, attributed=True, warnings=warnings)


def _called_ns(kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """When the operator of each collective of a CPU run began; null for all other work."""
    if not (kernels["kind"] == "collective").any():
        return pl.repeat(None, kernels.height, dtype=pl.Int64, eager=True)
    called = kernels["op_id"].set(kernels["kind"] != "collective", None)
    return of_operators(ops, called, "start_ns")["start_ns"]


def _with_operators_of_replays(kernels: pl.DataFrame, learned: pl.DataFrame) -> pl.DataFrame:
    """`kernels`, each replayed one with the operator that it has in its graph, where that is known.

    Else it stays with what is around the graph's launch, such as a compiled region.
    """
    if learned.is_empty():
        return kernels
    found = kernels.with_row_index("kernel_row").join(
        learned, on="kernel_row", how="left", maintain_order="left", suffix="_learned"
    )
    return found.with_columns(
        op_id=pl.coalesce("op_id_learned", "op_id"), op_certain="op_certain_learned"
    ).select(kernels.columns)


def _without_cut_off_step(
    kernels: pl.DataFrame, steps: pl.DataFrame, info: ProcessInfo
) -> tuple[pl.DataFrame, pl.DataFrame, ProcessInfo]:
    """The last step's phase changed, and its work of no step, where an imported trace cut it."""
    found = None if info.schedule is not None else cut_off_step(steps, kernels)
    if found is None:
        return kernels, steps, info
    index, sentence = found
    return (
        kernels.with_columns(step=pl.when(pl.col("step") != index).then("step")),
        steps.with_columns(
            phase=pl.when((pl.col("phase") == "profiled") & (pl.col("index") == index))
            .then(pl.lit("cut off"))
            .otherwise("phase")
        ),
        structs.replace(info, warnings=(*info.warnings, sentence)),
    )


def _launched_before_the_capture(kernels: pl.DataFrame, launched: pl.Series) -> pl.Series:
    """Which kernels ran on their stream before the first one whose launch was recorded.

    A stream runs in order, so what stands before that launch was queued when the recording began.
    Where no launch at all was recorded this tells nothing, and no kernel counts.
    """
    marked = kernels.select(
        "start_ns", "kind", *_STREAM, launched=launched if len(launched) else pl.lit(True)
    )
    first = marked.filter("launched").group_by(_STREAM).agg(first_ns=pl.col("start_ns").min())
    joined = marked.join(first, on=_STREAM, how="left", nulls_equal=True, maintain_order="left")
    return joined.select(
        (~pl.col("launched") & (pl.col("kind") != "op") & (pl.col("start_ns") < pl.col("first_ns")))
        .fill_null(False)
        .alias("earlier")
    )["earlier"]
