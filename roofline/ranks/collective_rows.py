"""The collectives of the profiled steps of one rank, as rows of its summary."""

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.intervals import covered_ns, merged
from gpuprof.roofline.ranks.summary import COLLECTIVES
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.attribution import launch_of_kernels, of_operators


def collective_rows(
    capture: Capture, kernels: pl.DataFrame, steps: Stretch, *, on_cpu: bool
) -> pl.DataFrame:
    """The rows of `COLLECTIVES` for `kernels`, the device work of the profiled steps."""
    own = kernels[(kernels["kind"] == "collective").arg_true()]
    rows = _with_calls(capture, own, on_cpu=on_cpu)
    if steps.definition == "whole trace":
        rows = rows.with_columns(step=pl.lit(0, pl.Int32))
    rows = rows.filter(pl.col("step").is_in(steps.indices or (0,)))
    working = kernels.select("kind", "start_ns", "end_ns").filter(pl.col("kind") != "collective")
    busy = merged(working["start_ns"].to_numpy(), working["end_ns"].to_numpy())
    covered = covered_ns(busy, rows["end_ns"].to_numpy()) - covered_ns(
        busy, rows["start_ns"].to_numpy()
    )
    return (
        rows.with_columns(exposed_ns=pl.col("end_ns") - pl.col("start_ns") - pl.Series(covered))
        .select(pl.col(name).cast(dtype) for name, dtype in COLLECTIVES.items())
        .sort("start_ns", maintain_order=True)
    )


def whole_steps(rows: pl.DataFrame, limit: int) -> pl.DataFrame:
    """The first `limit` of `rows`, of whole steps where a step has no more than that.

    Every rank leaves out the same, so that what is left has its counterparts.
    """
    reached = rows.group_by("step", maintain_order=True).len().with_columns(pl.col("len").cum_sum())
    fitting = reached.filter(pl.col("len") <= limit)["step"]
    if fitting.is_empty():
        return rows.head(limit)
    return rows.filter(pl.col("step").is_in(fitting.implode()))


def segments(rows: pl.DataFrame, step: pl.Series, times_ns: pl.Series) -> pl.Series:
    """For each time in a step how many of the step's collectives had begun before it."""
    found = np.zeros(len(step), np.int32)
    own = step.to_numpy()
    times = times_ns.to_numpy()
    for (index,), collectives in rows.group_by("step"):
        at = np.flatnonzero(own == index)
        found[at] = np.searchsorted(collectives["start_ns"].to_numpy(), times[at], side="left")
    return pl.Series(found)


def _with_calls(capture: Capture, rows: pl.DataFrame, *, on_cpu: bool) -> pl.DataFrame:
    """`rows` with launch_ns and the members of their groups.

    On a CPU the operator that puts a collective into its queue is the launch.
    """
    launches = launch_of_kernels(capture)["launch_ns"]
    called = of_operators(capture.ops, rows["op_id"], "start_ns")["start_ns"]
    groups = capture.processes[0].process_groups
    members = {each.name: msgspec.json.encode(each.ranks).decode() for each in groups if each.ranks}
    return rows.with_columns(
        launch_ns=launches.gather(rows["kernel_row"]), called_ns=called
    ).with_columns(
        launch_ns=pl.coalesce("launch_ns", pl.when(pl.lit(value=on_cpu)).then("called_ns")),
        group_ranks=pl.col("group").replace_strict(members, default=None, return_dtype=pl.String),
    )
