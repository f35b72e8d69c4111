"""What a piece of memory is for: told by what held it, else by where it was allocated."""

from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NEVER, NONE, Integers
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.memory.lifetimes import Lifetimes
from gpuprof.roofline.work.attribution import rows_of
from gpuprof.roofline.work.op_tree import op_phases

# Categories of `memory_blocks` that name a kind. A buffer is part of a model as a parameter is.
KIND_OF_CATEGORY: Final = {
    "parameter": "parameters",
    "buffer": "parameters",
    "gradient": "gradients",
    "optimizer state": "optimizer state",
}
# Of what was there before anything was recorded, the last resort.
KIND_OF_HELD: Final = {**KIND_OF_CATEGORY, "tensor": "tensors"}
# Operators that only allocate, for another one: ATen's factories of memory without content.
_ALLOCATES_ONLY: Final = r"^aten::(?:new_)?empty|^aten::resize_?$"
_KINDS_OF_PHASE: Final = {
    "backward": "backward",
    "optimizer": "workspace",
    "gradients": "workspace",
}


def with_kinds(lives: Lifetimes, seen: pl.DataFrame, capture: Capture) -> pl.DataFrame:
    """`lives.blocks` with columns kind, operator, module and line ("file:line function").

    `seen` are rows of `memory_blocks` of the same device: a block seen at a moment tells what is at
    its address then. The rest is told by the operator that allocated, its phase, and whether it
    gave the memory back before it ended.
    """
    owner = _owners(lives.blocks, capture)
    blocks = lives.blocks.with_columns(
        owner.select("operator", "module", "line", "owner_end_ns", "phase")
    ).with_columns(category=_category_of_blocks(lives.blocks, seen))
    by_origin = (
        pl.when(pl.col("operator") == "")
        .then(pl.lit("other"))
        .when(pl.col("died_ns") <= pl.col("owner_end_ns"))
        .then(pl.lit("workspace"))
        .otherwise(pl.col("phase").replace_strict(_KINDS_OF_PHASE, default="activations"))
    )
    held = pl.col("category").replace_strict(KIND_OF_CATEGORY, default=None)
    return blocks.with_columns(kind=pl.coalesce(held, by_origin)).drop(
        "owner_end_ns", "phase", "category"
    )


def _category_of_blocks(blocks: pl.DataFrame, seen: pl.DataFrame) -> pl.Series:
    """For each block the category of what was seen at its address while it lived, or null."""
    seen = seen.filter(pl.col("category").is_in(list(KIND_OF_CATEGORY)))
    known = (
        blocks.select("address", "born_ns", "died_ns")
        .with_row_index("row")
        .join(seen.select("address", "time_ns", "category"), on="address")
        .filter(
            (pl.col("born_ns") <= pl.col("time_ns"))
            & (pl.col("died_ns").is_null() | (pl.col("time_ns") < pl.col("died_ns")))
        )
        .unique("row", keep="first", maintain_order=True)
    )
    rows = pl.DataFrame({"row": np.arange(blocks.height, dtype=np.uint32)})
    return rows.join(known, on="row", how="left", maintain_order="left")["category"]


def _owners(blocks: pl.DataFrame, capture: Capture) -> pl.DataFrame:
    """For each block the operator that it is for, with its module, line, phase and end."""
    ops = capture.ops
    if ops.is_empty():
        return blocks.with_columns(
            operator=pl.lit(""),
            module=pl.lit(""),
            line=pl.lit(""),
            owner_end_ns=pl.lit(None, pl.Int64),
            phase=pl.lit(""),
        )
    rows = _owner_rows(rows_of(ops, blocks["op_id"]), ops)
    found = pl.Series(rows != NONE)
    phases = op_phases(capture)["phase"]
    lines = ops.select(
        pl.format(
            "{}{} {}",
            "file",
            pl.format(":{}", "line").fill_null(""),
            pl.col("function").fill_null(""),
        ).str.strip_chars()
    ).to_series()
    return pl.select(
        operator=pl.when(found).then(ops["name"].gather(rows)).otherwise(pl.lit("")),
        module=pl.when(found).then(ops["module"].gather(rows).fill_null("")).otherwise(pl.lit("")),
        line=pl.when(found).then(lines.gather(rows).fill_null("")).otherwise(pl.lit("")),
        owner_end_ns=pl.when(found).then(ops["end_ns"].fill_null(NEVER).gather(rows)),
        phase=pl.when(found).then(phases.gather(rows).cast(pl.String)).otherwise(pl.lit("")),
    )


def _owner_rows(rows: Integers, ops: pl.DataFrame) -> Integers:
    """The nearest operator around each of `rows` that does more than allocate, else the outermost.

    Rows of `ops`; -1 stays -1.
    """
    only_allocates = ops["name"].str.contains(_ALLOCATES_ONLY).to_numpy()
    parents = rows_of(ops, ops["parent_id"])
    owners: Integers = rows.copy()
    while True:
        climbing = (owners != NONE) & only_allocates[owners] & (parents[owners] != NONE)
        if not climbing.any():
            return owners
        owners = np.where(climbing, parents[owners], owners)
