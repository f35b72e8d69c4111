"""The rows of a trace -> the tables of a capture: steps apart, parents known, work classified.

A trace without device work is a CPU run, whose leaf operators and collectives become the rows of
`kernels`.
ProfilerStep#N annotations are the steps; all other user annotations are ranges.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors import freed_memory, schema
from gpuprof.collectors.call_tree import cpu_leaf_ops
from gpuprof.collectors.call_tree.nesting import (
    NONE,
    Integers,
    enclosing,
    nesting_order,
    parents,
    thread_codes,
)
from gpuprof.collectors.joining.captured_graphs import captured_nodes
from gpuprof.collectors.kineto import collectives, device_evidence, events, generated_kernels
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.host_collectives import host_collectives
from gpuprof.collectors.kineto.python_frames import RECOMPUTE, with_lines_and_modules
from gpuprof.collectors.kineto.tables import HOST_BACKENDS
from gpuprof.collectors.named_kernels import with_kinds
from gpuprof.collectors.recorded_collectives import RecordedCollective

STEPS_FOUND_BY: Final = "ProfilerStep annotations"
_HOST_COLLECTIVE: Final = f"^(?:{'|'.join(HOST_BACKENDS)})"
_STEP: Final = "ProfilerStep#"
# Before all others.
_NO_EXTERNAL_ID: Final = -(2**63)
_STEP_INDEX: Final = r"^ProfilerStep#(\d{1,9})$"


def assemble(
    raw: dict[str, pl.DataFrame],
    fields: Mapping[str, object],
    findings: Findings,
    base_ns: int | None,
    recorded: Sequence[RecordedCollective] = (),
) -> tuple[dict[str, pl.DataFrame], bool]:
    """The capture tables of one process, still without rank, and whether it ran on a CPU.

    `raw` are its rows as `Tables` collects them, `fields` the metadata of the trace, `recorded`
    what torch's flight recorder had of its collectives. On a CPU run the work is leaf operators,
    for there is no device, and collectives. What is large is taken out of `raw`, so
    that its rows are not held beside those of the capture.
    """
    ops, op_steps = _without_steps(raw.pop("ops"))
    ranges, range_steps = _without_steps(raw["ranges"])
    launches = raw.pop("launches")
    answered = raw["kernels"].select("process", "correlation")
    ops = generated_kernels.with_arguments(_with_parents(ops))
    on_cpu = not device_evidence.found({**raw, "launches": launches, "ops": ops}, fields, findings)
    if on_cpu:
        kernels = cpu_leaf_ops.kernels(ops, ranges)
        on_host = raw["host_collectives"]
        if on_host.height:
            ranges = ranges.filter(~pl.col("name").str.contains(_HOST_COLLECTIVE))
            found = host_collectives(on_host, ops, fields, recorded, base_ns or 0)
            found = collectives.with_message_bytes(found, findings)
            kernels = pl.concat([kernels, found], how="diagonal")
    else:
        kernels = collectives.with_operators_metadata(
            with_kinds(raw.pop("kernels")), launches, raw["collective_ops"]
        )
        kernels = collectives.with_message_bytes(kernels, findings)
    kernels, launches = _by_start(kernels), _by_start(launches)
    ranges = ranges.sort("start_ns", maintain_order=True)
    tables = {
        "kernels": kernels,
        "ops": _with_recompute(
            with_lines_and_modules(ops, raw["frames"]),
            raw["frames"],
            with_stack=bool(fields.get("with_stack")),
        ),
        "launches": launches,
        "ranges": ranges.with_columns(domain=pl.lit("record_function")),
        # In 2020 and 2021 steps were written as operators.
        "steps": _steps(pl.concat([range_steps, op_steps.select(range_steps.columns)])),
        "allocations": _allocations(raw["allocations"], ops),
        "graph_nodes": captured_nodes(launches, answered, ops, ranges),
    }
    return {name: _on_clock(frame, base_ns or 0) for name, frame in tables.items()}, on_cpu


def with_rank(name: str, frame: pl.DataFrame, rank: int) -> pl.DataFrame:
    """`frame` as the table `name` of the schema."""
    # A number that is too large for its column is no size or index: null.
    narrow = [
        column
        for column, dtype in schema.TABLES[name].items()
        if dtype == pl.Int32 and column in frame.columns
    ]
    return schema.conform(
        name,
        frame.with_columns(
            pl.lit(rank, pl.Int32).alias("rank"), pl.col(narrow).cast(pl.Int32, strict=False)
        ),
    )


def _without_steps(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that are no steps, and those that are."""
    is_step = frame["name"].str.starts_with(_STEP)
    if not is_step.any():
        return frame, frame.clear()
    return frame.filter(~is_step), frame.filter(is_step)


def _with_parents(ops: pl.DataFrame) -> pl.DataFrame:
    """Operators in the order of the schema, with ids and parents. Those of `ops` are given up."""
    external_ids = ops["external_id"].fill_null(_NO_EXTERNAL_ID).to_numpy()
    ops = _in_order(
        ops, nesting_order(ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy(), external_ids)
    )
    (threads,) = thread_codes(ops)
    parent = parents(threads, ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())
    return ops.with_columns(op_id=pl.Series(np.arange(ops.height)), parent_id=_links(parent))


def _by_start(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame`, which is given up, in order of time."""
    return _in_order(frame, np.argsort(frame["start_ns"].to_numpy(), kind="stable"))


def _in_order(frame: pl.DataFrame, order: Integers) -> pl.DataFrame:
    """The rows of `frame` in the order `order`.

    Its columns are given up one after the other: two such tables are never held.
    """
    rows = pl.Series(order.astype(np.uint32))
    ordered = pl.DataFrame([frame.drop_in_place(name).gather(rows) for name in frame.columns])
    freed_memory.give_back()
    return ordered


def _links(positions: Integers) -> pl.Series:
    """Positions of rows, null where there is none."""
    return pl.Series(positions).set(pl.Series(positions == NONE), None)


def _steps(annotations: pl.DataFrame) -> pl.DataFrame:
    return (
        annotations.sort("start_ns")
        .with_columns(
            index=pl.col("name").str.extract(_STEP_INDEX).cast(pl.Int32),
            host_ns=pl.col("end_ns") - pl.col("start_ns"),
            phase=pl.lit("profiled"),
            found_by=pl.lit(STEPS_FOUND_BY),
        )
        .filter(pl.col("index").is_not_null())
        # The same annotation may have been written as a range and as an operator.
        .unique("index", keep="first", maintain_order=True)
    )


def _with_recompute(ops: pl.DataFrame, frames: pl.DataFrame, *, with_stack: bool) -> pl.DataFrame:
    """Fill `recompute`: the operator ran under activation checkpointing's second forward.

    Only Python stacks tell; without them it stays null.
    """
    frames = frames.filter(pl.col("name").str.contains(RECOMPUTE, literal=True))
    if not with_stack and frames.is_empty():
        return ops
    frames = frames.sort("start_ns", "end_ns", descending=[False, True])
    return ops.with_columns(recompute=pl.Series(enclosing(frames, ops, "start_ns") != NONE))


def _allocations(raw: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    on_device = pl.col("device_type") != events.CPU_DEVICE_TYPE
    parent = ops["parent_id"].fill_null(NONE).to_numpy()
    return raw.with_columns(
        op_id=_links(enclosing(ops, raw, "time_ns", parent)),
        device=pl.when(on_device).then(pl.col("device")),
        # torch writes 0 for main memory, of which it reserves nothing.
        reserved=pl.when(on_device).then(pl.col("reserved")),
        category=pl.when(on_device).then(pl.lit("device")).otherwise(pl.lit("cpu")),
    ).sort("time_ns", maintain_order=True)


def _on_clock(frame: pl.DataFrame, base_ns: int) -> pl.DataFrame:
    times = [column for column in ("start_ns", "end_ns", "time_ns") if column in frame.columns]
    return frame.with_columns(pl.col(times) + base_ns) if base_ns else frame
