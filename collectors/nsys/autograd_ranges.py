"""Operators that torch's autograd marked as NVTX ranges.

`torch.autograd.profiler.emit_nvtx` pushes a range at each operator and each `record_function`:

    aten::addmm, seq = 190, op_id = 23, sizes = [[4096], [2048, 1024], [1024, 4096], [], []],
    input_op_ids = [(0,-1), (19,0), (20,0), (0,-1), (0,-1)]

(getNvtxStr of torch/csrc/profiler/util.cpp; without shapes the text ends before `sizes`, and torch
before 1.9 has no `op_id`). Types, strides and values are not in it.
"""

from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, parents, thread_codes

_TEXT: Final = (
    r"^(?<op>.+?)(?:, seq = (?<sequence>-?\d{1,18}))?(?:, op_id = (?<id>\d{1,19}))?"
    r"(?:, sizes = (?<sizes>\[[\[\]\d, ]*\]))?(?:, input_op_ids = \[[\(\)\d, -]*\])?$"
)
# Operators and autograd's own functions stand in a namespace; what Python marks does not.
_NAMESPACE: Final = "::"


def split_operators(ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Operators and the ranges that are none, each with the columns of `ranges` and its own.

    Operators have `sequence`, `input_dims` and `input_types` as their schema has them; what
    `record_function` marked is a range of that domain, by its own name.
    """
    marked = (pl.col("domain") == "nvtx") & ~pl.col("across_threads")
    fields = pl.col("name").str.extract_groups(_TEXT)
    found = ranges.with_columns(
        pl.when(marked).then(fields.struct.field(name)).alias(name)
        for name in ("op", "sequence", "id", "sizes")
    )
    said = pl.any_horizontal(pl.col("sequence", "id", "sizes").is_not_null())
    found = found.with_columns(by_torch=said & pl.col("end_ns").is_not_null())
    no_sizes = pl.col("sizes").is_null() & pl.col("sequence").is_null()
    unnamed = ~pl.col("op").str.contains(_NAMESPACE, literal=True)
    is_scope = pl.col("by_torch") & no_sizes & unnamed
    is_operator = pl.col("by_torch") & ~is_scope
    operators = found.filter(is_operator).with_columns(
        name=pl.col("op"),
        sequence=pl.col("sequence").cast(pl.Int64, strict=False),
        input_dims="sizes",
        # As of a trace that leaves the types out.
        input_types=pl.when(pl.col("sizes").is_not_null()).then(pl.lit("[]")),
    )
    others = found.filter(~is_operator).with_columns(
        name=pl.when(is_scope).then("op").otherwise("name"),
        domain=pl.when(is_scope).then(pl.lit("record_function")).otherwise("domain"),
    )
    return operators, others.select(ranges.columns)


def with_parents(operators: pl.DataFrame) -> pl.DataFrame:
    """The operators of all processes as rows of `ops`, but for `rank`, with ids and parents."""
    ops = operators.sort(
        "process", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True
    )
    (threads,) = thread_codes(ops)
    starts, ends = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    order = np.argsort(starts, kind="stable")
    found = np.empty(ops.height, np.int64)
    above = parents(threads[order], starts[order], ends[order])
    found[order] = np.where(above == NONE, NONE, order[above])
    return ops.with_columns(
        op_id=pl.int_range(pl.len(), dtype=pl.Int64),
        parent_id=pl.Series(found).set(pl.Series(found == NONE), None),
    )
