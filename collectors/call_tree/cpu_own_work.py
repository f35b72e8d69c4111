"""What operators of a CPU run do themselves, beside the operators that they call.

Generated kernels of torch.compile and the code of custom operators leave no event: their time lies
in the operator around them, outside of all that it calls.
"""

from typing import Final

import polars as pl

from gpuprof.collectors.call_tree.op_subtrees import Booleans

# Operators of torch itself mostly pass work on, at a few microseconds a call. One works itself if
# most of its time is its own, in stretches longer than any dispatch.
_TORCH: Final = "aten::"
_DISPATCH_NS: Final = 100_000
_MOSTLY: Final = 0.5
# Shorter stretches are the cost of a call.
_CALL_NS: Final = 1_000


# torch/_dynamo/convert_frame.py, torch/_functorch/_aot_autograd/runtime_wrappers.py
_COMPILED: Final = r"^(?:Torch-Compiled Region|CompiledFunction(?:Backward)?$)"
# torch/_inductor/output_code.py: the range of the generated code without what finds and checks it.
_GENERATED: Final = "## Call CompiledFxGraph"


def stretches(ops: pl.DataFrame, ranges: pl.DataFrame, may_work: Booleans) -> pl.DataFrame:
    """Rows of `ops` with the start and end of each stretch of own work.

    `may_work` are the operators above leaves that are not known to do nothing themselves. What
    torch.compile compiled works in any case; of it only the generated code counts where `ranges`
    tell where that ran.
    """
    is_compiled = ops["name"].str.contains(_COMPILED)
    compiled = _outside_of_children(ops.filter(is_compiled), ops)
    graphs = ranges.filter(pl.col("name").str.starts_with(_GENERATED))
    if graphs.height:
        compiled = _within(compiled, graphs)
    others = _outside_of_children(ops.filter(~is_compiled & pl.Series(may_work)), ops)
    own_ns = pl.col("end_ns") - pl.col("start_ns")
    of_torch = pl.col("name").str.starts_with(_TORCH)
    others = others.filter(~of_torch | (own_ns >= _DISPATCH_NS)).filter(
        ~of_torch | (own_ns.sum().over("op_id") > _MOSTLY * pl.col("whole_ns"))
    )
    found = pl.concat([compiled, others.select(compiled.columns)])
    return found.filter(own_ns >= _CALL_NS).select(ops.columns)


def _outside_of_children(parents: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """A row for each stretch of each of `parents` in which none of `ops` below it runs.

    whole_ns is how long the operator took in all.
    """
    children = (
        ops.filter(pl.col("parent_id").is_in(parents["op_id"].implode()))
        .sort("start_ns", maintain_order=True)
        .group_by("parent_id", maintain_order=True)
        .agg(child_start="start_ns", child_end="end_ns")
    )
    nothing = pl.lit([], dtype=pl.List(pl.Int64))
    # From the operator's start to its first child, from each to the next, from the last to its end.
    return (
        parents.join(
            children, left_on="op_id", right_on="parent_id", how="left", maintain_order="left"
        )
        .with_columns(
            whole_ns=pl.col("end_ns") - pl.col("start_ns"),
            start_ns=pl.concat_list("start_ns", pl.col("child_end").fill_null(nothing)),
            end_ns=pl.concat_list(pl.col("child_start").fill_null(nothing), "end_ns"),
        )
        .drop("child_start", "child_end")
        .explode("start_ns", "end_ns")
        # A clock that was rounded may let one seem to begin before the last one ended.
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )


def _within(stretches: pl.DataFrame, graphs: pl.DataFrame) -> pl.DataFrame:
    """The parts of `stretches` that lie in `graphs`, of their own thread."""
    here = graphs.select("process", "thread", graph_start="start_ns", graph_end="end_ns")
    return (
        stretches.join(here, on=["process", "thread"], how="inner")
        .with_columns(
            start_ns=pl.max_horizontal("start_ns", "graph_start"),
            end_ns=pl.min_horizontal("end_ns", "graph_end"),
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .drop("graph_start", "graph_end")
    )
