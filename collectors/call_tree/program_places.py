"""Where in the program operators belong: its line, and the module that called them.

An operator of the forward pass was called from where the program was at that time. One of a
backward pass belongs to where the operator that it differentiates was called, unless the program's
own code runs in it (a backward in Python, activation checkpointing). What autograd does beside
that, such as adding up gradients, belongs to the line that waits for the backward pass.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.autograd_nodes import are_nodes, differentiated
from gpuprof.collectors.call_tree.inheriting import UNKNOWN, inherit
from gpuprof.collectors.call_tree.nesting import NONE, Integers, enclosing
from gpuprof.collectors.call_tree.op_subtrees import Booleans

LINE: Final = ("file", "line", "function", "function_line")
MODULE: Final = ("module",)
STACK: Final = ("stack",)
# Stands for an operator whose place is not known, and which does not take over that of another.
_UNKNOWABLE: Final = -1
# Operators and positions are timed by two clocks; an operator takes at least that long, and longer
# than any difference between the two.
_INTO_OPERATOR_NS: Final = 1_000


@dataclass(frozen=True)
class PlaceCodes:
    """Places of one kind: a line, a module or a stack.

    `table` holds each place once, from code 1 on; `at_start` is the code for each operator at its
    start, UNKNOWN where nothing is known; `waiting` is that of the thread that waits meanwhile.
    Where `own`, the code of the program's line, changes below a node of a backward pass, the
    program's own code runs there.
    """

    table: pl.DataFrame
    at_start: Integers
    waiting: Integers
    own: Integers


def with_positions(ops: pl.DataFrame, positions: pl.DataFrame) -> pl.DataFrame:
    """`ops`, of one process, with the columns of lines, modules and stacks by `positions`.

    Each op_id counts the rows from 0.
    """
    if positions.is_empty() or ops.is_empty():
        return ops
    positions = positions.sort("start_ns", maintain_order=True)
    half_ns = (pl.col("end_ns") - pl.col("start_ns")) // 2
    points = ops.with_columns(
        inside_ns=pl.col("start_ns") + pl.min_horizontal(half_ns, pl.lit(_INTO_OPERATOR_NS))
    )
    own = enclosing(positions, points, "inside_ns")
    followed = positions.select("process", "thread").unique()
    waiting = np.full(ops.height, NONE, np.int64)
    if followed.height == 1:
        (thread,) = followed.iter_rows(named=True)
        there = points.with_columns(
            pl.lit(value, pl.Int64).alias(name) for name, value in thread.items()
        )
        waiting = enclosing(positions, there, "inside_ns")
    lines, _ = _coded(positions.select(LINE))
    for columns in (LINE, MODULE, STACK):
        codes, table = _coded(positions.select(columns))
        # Libraries in Python, as what torch.compile runs, have stacks of their own there.
        moves = codes if columns == MODULE else lines
        places = PlaceCodes(table, _at(codes, own), _at(codes, waiting), _at(moves, own))
        ops = with_places(ops, columns, places)
    return ops


def with_places(ops: pl.DataFrame, columns: tuple[str, ...], places: PlaceCodes) -> pl.DataFrame:
    """`ops`, of one process, with `columns` filled by `places`. Each op_id counts the rows."""
    codes = _belonging(ops, places)
    filled = places.table.select(columns)[np.maximum(codes - 1, 0)] if places.table.height else None
    if filled is None:
        return ops
    known = pl.Series(codes > UNKNOWN)
    return ops.with_columns(
        pl.when(known).then(filled[name]).otherwise(None).alias(name) for name in columns
    )


def _belonging(ops: pl.DataFrame, places: PlaceCodes) -> Integers:
    """The code of the place to which each operator belongs."""
    at_start = places.at_start
    parents = ops["parent_id"].fill_null(NONE).to_numpy()
    node = are_nodes(ops["name"])
    within = _nearest(node, parents)
    inside = within != NONE
    # Below a node the program's own code runs where it is elsewhere than when the node began.
    moved = inside & (places.own != places.own[within]) & (places.own != UNKNOWN)
    codes = np.where(inside & ~moved, UNKNOWN, at_start)
    # What records a graph inside a node is a forward pass that is repeated there, not the node's.
    codes[inside & ~moved & ~node & ops["sequence"].is_not_null().to_numpy()] = _UNKNOWABLE
    codes[node] = UNKNOWN
    nodes, made = differentiated(ops, node)
    codes[nodes] = inherit(codes, parents)[made]
    alone = node & ~inside & (codes == UNKNOWN)
    codes[alone] = np.where(at_start == UNKNOWN, places.waiting, at_start)[alone]
    codes = inherit(codes, parents)
    return np.maximum(codes, UNKNOWN)


def _nearest(rows: Booleans, parents: Integers) -> Integers:
    """For each operator the nearest of `rows` above it, or NONE."""
    numbered = np.where(rows, np.arange(1, len(rows) + 1), UNKNOWN)
    above = np.where(parents != NONE, inherit(numbered, parents)[parents], UNKNOWN)
    return above - 1


def _coded(places: pl.DataFrame) -> tuple[Integers, pl.DataFrame]:
    """The table of what is in `places` from code 1 on, and the code of each row.

    It is UNKNOWN where the first column is null.
    """
    table = places.drop_nulls(places.columns[0]).unique(maintain_order=True)
    codes = places.join(
        table.with_row_index("code", offset=1),
        on=places.columns,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["code"]
    return codes.cast(pl.Int64).fill_null(UNKNOWN).to_numpy(), table


def _at(codes: Integers, rows: Integers) -> Integers:
    return np.where(rows == NONE, UNKNOWN, codes[rows])
