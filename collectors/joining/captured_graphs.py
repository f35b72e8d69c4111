"""Nodes of CUDA graphs whose capture was recorded: the calls that made them, and their operators.

While a stream is captured, operators run on the host as ever, with their shapes, but what they
launch becomes a node of a graph and no device work. So the calls between the beginning and the end
of a capture that no device work answers are the graph's nodes, in the order in which it got them.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.call_tree.nesting import NONE, Integers, enclosing
from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.captured_graph import CapturedGraph

BEGIN_CAPTURE: Final = r"^(?:cuda|cu|hip)StreamBeginCapture"
END_CAPTURE: Final = r"^(?:cuda|cu|hip)StreamEndCapture"
# cudaLaunchKernelExC, cuLaunchKernel, hipExtModuleLaunchKernel.
_LAUNCHES_A_KERNEL: Final = (
    r"^(?:cuda|cu|hip)(?:(?:Ext|Hcc)?(?:Module)?Launch(?:Cooperative)?(?:Kernel|Grid))"
)
_COPIES: Final = r"^(?:cuda|cu|hip)Memcpy"
_FILLS: Final = r"^(?:cuda|cu|hip)Memset"
_SIZES: Final = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


def captured_nodes(
    launches: pl.DataFrame, kernels: pl.DataFrame, ops: pl.DataFrame, ranges: pl.DataFrame
) -> pl.DataFrame:
    """The rows of `graph_nodes`, without rank, of the captures in the calls of one rank.

    `launches` may have the columns kernel and grid_x to block_z beside the schema's. A call on
    another thread than that of the capture, as autograd makes, counts where only one capture is
    under way. Captures that the recording cuts off are left out.
    """
    captures = _captures(launches)
    calls = _calls(launches, kernels) if captures.height else captures
    if calls.is_empty():
        return schema.empty("graph_nodes").drop("rank")
    chosen, known = _capture_of(calls, captures)
    rows = enclosing(ops, calls, "start_ns")
    ranges = ranges.sort("start_ns", "end_ns", descending=[False, True])
    around = enclosing(ranges, captures, "start_ns")
    labels = pl.Series(
        [None if row == NONE else ranges["name"][int(row)] for row in around], dtype=pl.String
    )
    sizes = [name for name in ("kernel", *_SIZES) if name in calls.columns]
    return (
        calls.select("start_ns", "kind", *sizes)
        .rename({"kernel": "name"}, strict=False)
        .with_columns(
            graph=pl.Series(chosen),
            op_id=pl.Series(np.where(rows == NONE, NONE, ops["op_id"].to_numpy()[rows]))
            if ops.height
            else pl.lit(NONE, pl.Int64),
            label=labels.gather(pl.Series(chosen)),
            origin=pl.lit("capture"),
        )
        .filter(pl.Series(known))
        .with_columns(
            op_id=pl.when(pl.col("op_id") != NONE).then("op_id"),
            node=pl.int_range(pl.len(), dtype=pl.Int32).over("graph"),
        )
    )


def _capture_of(calls: pl.DataFrame, captures: pl.DataFrame) -> tuple[Integers, Booleans]:
    """For each call the row of its capture, and whether there is one."""
    own = enclosing(captures, calls, "start_ns")
    # Of the whole process, the one that began last and is under way.
    anywhere = enclosing(captures.with_columns(thread=0), calls.with_columns(thread=0), "start_ns")
    under_way = np.zeros(calls.height, np.int64)
    for process, part in captures.group_by("process"):
        here = (calls["process"] == process[0]).to_numpy()
        times_ns = calls["start_ns"].to_numpy()[here]
        begun, ended = (
            np.searchsorted(np.sort(part[name].to_numpy()), times_ns, side="right")
            for name in ("start_ns", "end_ns")
        )
        under_way[here] = begun - ended
    chosen = np.where(own != NONE, own, anywhere)
    return np.maximum(chosen, 0), (own != NONE) | (under_way == 1)


def _captures(launches: pl.DataFrame) -> pl.DataFrame:
    """process, thread, start_ns and end_ns of each capture."""
    marks = (
        launches.select(
            "process",
            "thread",
            "start_ns",
            begins=pl.when(pl.col("name").str.contains(BEGIN_CAPTURE))
            .then(True)
            .when(pl.col("name").str.contains(END_CAPTURE))
            .then(False),
        )
        .drop_nulls("begins")
        .sort("start_ns", maintain_order=True)
    )
    found = []
    begun: dict[tuple[int, int], int] = {}
    for process, thread, start_ns, begins in marks.iter_rows():
        if begins:
            begun[process, thread] = start_ns
        elif (process, thread) in begun:
            found.append((process, thread, begun.pop((process, thread)), start_ns))
    columns = ("process", "thread", "start_ns", "end_ns")
    return pl.DataFrame(found, dict.fromkeys(columns, pl.Int64), orient="row").sort("start_ns")


def _calls(launches: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """The calls that can have made nodes, in order: those that no row of `kernels` answers."""
    name = pl.col("name")
    return (
        launches.with_columns(
            kind=pl.when(name.str.contains(_LAUNCHES_A_KERNEL))
            .then(pl.lit("kernel"))
            .when(name.str.contains(_COPIES))
            .then(pl.lit("memcpy"))
            .when(name.str.contains(_FILLS))
            .then(pl.lit("memset"))
        )
        .drop_nulls(["kind", "correlation"])
        .join(kernels, on=["process", "correlation"], how="anti")
        .sort("start_ns", maintain_order=True)
        # A runtime call and the driver's call inside it share an id.
        .unique(["process", "correlation"], keep="first", maintain_order=True)
    )


def with_kernels(nodes: pl.DataFrame, graphs: Sequence[CapturedGraph]) -> pl.DataFrame:
    """Rows of `graph_nodes` of one rank with the kernels that the driver told of their graphs.

    A graph keeps its rows as they are where no one of `graphs` was captured then, or one whose
    nodes are of other kinds than the recorded calls.
    """
    parts = []
    for part in nodes.partition_by("graph", maintain_order=True):
        begun_ns = part["start_ns"][0]
        told = [
            graph.nodes
            for graph in graphs
            if begun_ns is not None and graph.start_ns <= begun_ns <= graph.end_ns
        ]
        kinds = part["kind"].to_list()
        if len(told) == 1 and [node.kind for node in told[0]] == kinds:
            part = part.with_columns(
                pl.Series("name", [node.name for node in told[0]], dtype=pl.String),
                *(
                    pl.Series(
                        f"{what}_{axis}",
                        [
                            None if (size := getattr(node, what)) is None else size[place]
                            for node in told[0]
                        ],
                        dtype=pl.Int32,
                    )
                    for what in ("grid", "block")
                    for place, axis in enumerate("xyz")
                ),
            )
        parts.append(part)
    return pl.concat(parts) if parts else nodes
