"""The rows of a trace -> the tables of a capture: steps apart, parents known, work classified.

A trace without device work is a CPU run, whose leaf operators become the rows of `kernels`.
ProfilerStep#N annotations are the steps; all other user annotations are ranges.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors import cpu_leaf_ops, schema
from gpuprof.collectors.kineto import events, generated_kernels, kernel_names, metadata
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.tables import Tables
from gpuprof.collectors.nesting import NONE, Integers, enclosing, parents, thread_codes

STEPS_FOUND_BY: Final = "ProfilerStep annotations"
_STEP: Final = "ProfilerStep#"
_STEP_INDEX: Final = r"^ProfilerStep#(\d{1,9})$"
_CPU_DEVICE_TYPE: Final = 0
# Categories of devices whose events are not read.
_ACCELERATOR: Final = re.compile("mtia_|privateuse1_|xpu_|hpu_", re.IGNORECASE)


@dataclass(frozen=True)
class Assembled:
    """The tables of a capture, still without rank; what else their rows say of the process."""

    tables: dict[str, pl.DataFrame]
    # The work is leaf operators, for there is no device.
    on_cpu: bool
    process: int | None


def assemble(tables: Tables, fields: Mapping[str, object], findings: Findings) -> Assembled:
    """The capture tables of a whole trace; `fields` are its metadata. Uses up `tables`."""
    ops, op_steps = _without_steps(tables.table("ops"))
    ranges, range_steps = _without_steps(tables.table("ranges"))
    launches, kernels = tables.table("launches"), tables.table("kernels")
    process = _main_process(launches, ops, ranges)
    ops = generated_kernels.with_argument_names(_with_parents(ops))
    on_cpu = _is_cpu_run(kernels, launches, fields, findings)
    if on_cpu:
        kernels = cpu_leaf_ops.kernels(ops)
    else:
        # Device events do not name the process that launched them.
        kernels = kernel_names.classify(kernels, findings).with_columns(
            process=pl.lit(process, pl.Int64)
        )
    allocations = _allocations(tables.table("allocations"), ops)
    with_stack = bool(fields.get("with_stack"))
    found = {
        "kernels": kernels.sort("start_ns", maintain_order=True),
        "ops": _with_recompute(ops, tables.table("frames"), with_stack=with_stack),
        "launches": launches.sort("start_ns", maintain_order=True),
        "ranges": ranges.sort("start_ns", maintain_order=True).with_columns(
            domain=pl.lit("record_function")
        ),
        # In 2020 and 2021 steps were written as operators.
        "steps": _steps(pl.concat([range_steps, op_steps.select(range_steps.columns)])),
        "allocations": allocations,
    }
    base = metadata.base_ns(fields)
    findings.unusable_base_time = base is None and "baseTimeNanoseconds" in fields
    return Assembled(
        {name: _on_clock(frame, base or 0) for name, frame in found.items()}, on_cpu, process
    )


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


def _is_cpu_run(
    kernels: pl.DataFrame,
    launches: pl.DataFrame,
    fields: Mapping[str, object],
    findings: Findings,
) -> bool:
    return (
        kernels.is_empty()
        and not launches["name"].str.contains("(?i)launch").any()
        and not any(map(_ACCELERATOR.match, findings.unread_categories))
        # Device events may have stood in the part that is missing.
        and (not findings.incomplete or fields.get("deviceProperties") == [])
    )


def _with_parents(ops: pl.DataFrame) -> pl.DataFrame:
    """Operators in the order of the schema, with ids and parents."""
    ops = ops.sort(
        "start_ns", "end_ns", "external_id", descending=[False, True, False], maintain_order=True
    )
    (threads,) = thread_codes(ops)
    parent = parents(threads, ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())
    return ops.with_columns(op_id=pl.Series(np.arange(ops.height)), parent_id=_links(parent))


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
    name = events.RECOMPUTE_FRAME.decode()
    frames = frames.filter(pl.col("name").str.contains(name, literal=True))
    if not with_stack and frames.is_empty():
        return ops
    frames = frames.sort("start_ns", "end_ns", descending=[False, True])
    return ops.with_columns(recompute=pl.Series(enclosing(frames, ops, "start_ns") != NONE))


def _allocations(raw: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    on_device = pl.col("device_type") != _CPU_DEVICE_TYPE
    parent = ops["parent_id"].fill_null(NONE).to_numpy()
    return raw.with_columns(
        op_id=_links(enclosing(ops, raw, "time_ns", parent)),
        device=pl.when(on_device).then(pl.col("device")),
        category=pl.when(on_device).then(pl.lit("device")).otherwise(pl.lit("cpu")),
    ).sort("time_ns", maintain_order=True)


def _main_process(*frames: pl.DataFrame) -> int | None:
    """The process of most rows of the first of `frames` that has any."""
    for frame in frames:
        if frame.height:
            return int(frame["process"].mode().sort()[0])
    return None


def _on_clock(frame: pl.DataFrame, base_ns: int) -> pl.DataFrame:
    times = [column for column in ("start_ns", "end_ns", "time_ns") if column in frame.columns]
    return frame.with_columns(pl.col(times) + base_ns) if base_ns else frame
