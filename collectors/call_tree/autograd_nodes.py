"""The nodes of backward passes among the operators, and what each of them differentiates."""

from typing import Final

import polars as pl

from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.collectors.call_tree.op_subtrees import Booleans

# pytorch torch/csrc/autograd/engine.cpp names the node it evaluates; the node's own record_function
# is the name in tools/autograd/derivatives.yaml, or a Python Function's name with "Backward".
NODE: Final = r"^autograd::engine::evaluate_function|Backward\d*$"


def are_nodes(names: pl.Series) -> Booleans:
    """Which of `names` are nodes of a backward pass; each distinct name is looked at once."""
    distinct = names.unique()
    matching = distinct.filter(distinct.str.contains(NODE))
    result: Booleans = names.is_in(matching.implode()).to_numpy()
    return result


def differentiated(ops: pl.DataFrame, node: Booleans) -> tuple[Integers, Integers]:
    """Rows of nodes in `ops`, of one process, and for each the row that it differentiates.

    `node` is which rows are nodes (`are_nodes`). An operator carries the number that the next node
    of its thread will get (pytorch aten/src/ATen/record_function.h): of those with one number the
    last made the node. Each thread counts for itself, and a node has its own name for the forward
    thread: which one that is, most of the numbers that only one thread has tell.
    """
    numbered = ops.select(
        "sequence",
        "forward_thread",
        "thread",
        "start_ns",
        is_node=pl.Series(node),
        row=pl.int_range(pl.len()),
    ).filter(pl.col("sequence").is_not_null())
    nodes = numbered.filter("is_node").select(
        "sequence", "forward_thread", node="row", node_ns="start_ns"
    )
    # Of a thread the last with one number, before the node: threads of autograd count anew.
    pairs = (
        nodes.join(numbered.filter(~pl.col("is_node")), on="sequence")
        .filter(pl.col("start_ns") < pl.col("node_ns"))
        .sort("start_ns")
        .group_by("node", "thread", maintain_order=True)
        .agg(pl.col("row").last(), pl.col("forward_thread").last())
        .with_columns(threads=pl.len().over("node"))
    )
    forward = (
        pairs.filter(pl.col("threads") == 1)
        .group_by("forward_thread", "thread")
        .len()
        .sort("len", "thread", descending=[True, False])
        .unique("forward_thread", keep="first", maintain_order=True)
        .select("forward_thread", forward="thread")
    )
    found = pairs.join(forward, on="forward_thread", how="left", nulls_equal=True).filter(
        (pl.col("thread") == pl.col("forward")) | pl.col("forward").is_null()
    )
    found = found.filter(pl.len().over("node") == 1)
    return found["node"].to_numpy(), found["row"].to_numpy()
