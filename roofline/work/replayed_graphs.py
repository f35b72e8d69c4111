"""What the replayed graphs of the profiled steps took, and how much of it has an operator."""

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.graph_partners import sizes_known
from gpuprof.roofline.graph_figures import ReplayedGraph
from gpuprof.roofline.work.work import Work


def replayed_graphs(capture: Capture, work: Work) -> tuple[ReplayedGraph, ...]:
    """The graphs that the steps of `work` replay, those first that take most device time.

    A replay is of the graph that gives most of its work operators. Those that none gives any are
    one row. `capture` has one rank.
    """
    kernels = work.kernels.filter(pl.col("replay").is_not_null())
    if kernels.is_empty():
        return ()
    # A stand-in for one of several operators has the times of one of them.
    keys = ("parent_id", "name", "thread", "start_ns")
    called = capture.ops.select("op_id", pl.struct(keys).alias("call"))
    nodes = capture.graph_nodes.drop_nulls("op_id").join(called, on="op_id")
    told = pl.col("op_certain").is_not_null()
    pieces = kernels.join(called, on="op_id", how="left", maintain_order="left").join(
        nodes.select("call", "graph").unique("call", keep="first", maintain_order=True),
        on="call",
        how="left",
        maintain_order="left",
    )
    replays = pieces.group_by("replay", maintain_order=True).agg(
        # Of most of its pieces.
        graph=pl.col("graph").filter(told).drop_nulls().mode().min(),
        pieces=pl.len(),
        pieces_with_op=told.sum(),
        device_ns=pl.col("duration_ns").sum(),
        with_op_ns=pl.col("duration_ns").filter(told).sum(),
        unsure_ns=pl.col("duration_ns").filter(~pl.col("op_certain")).sum(),
    )
    # What no node tells comes of eager work in the capture itself.
    by_eager = pl.col("graph").is_null() & (pl.col("pieces_with_op") > 0)
    sums = ("pieces", "pieces_with_op", "device_ns", "with_op_ns", "unsure_ns")
    graphs = (
        replays.with_columns(by_eager=by_eager)
        .group_by("graph", "by_eager", maintain_order=True)
        .agg(pl.len().alias("replays"), *(pl.col(name).sum() for name in sums))
        .sort("device_ns", descending=True, maintain_order=True)
        .join(
            nodes.select("graph", "label", "file", told_by="origin").unique("graph"),
            on="graph",
            how="left",
            maintain_order="left",
        )
        .with_columns(
            told_by=pl.when("by_eager").then(pl.lit("eager")).otherwise(pl.col("told_by"))
        )
        .with_columns(pl.col("told_by").fill_null(""))
        .drop("by_eager")
    )
    sized = {graph: sizes_known(part) for (graph,), part in nodes.group_by("graph")}
    by_size = sizes_known(kernels)
    found = []
    for row in graphs.iter_rows(named=True):
        graph = row.pop("graph")
        found.append(ReplayedGraph(by_size=by_size and sized.get(graph, True), **row))
    return tuple(found)
