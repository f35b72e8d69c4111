"""Puts what a trace leaves out of tensors into the operators of one that was recorded by gpuprof.

A trace has "TensorList" as the type of such an argument. With what was written beside the trace
it becomes "TensorList[float32]", or "TensorList[float32,bfloat16,...]" where the types differ.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors.recorded_lists import RecordedList, RecordedLists

LIST: Final = "TensorList"
_COLUMNS: Final = ("input_dims", "input_types", "input_strides")


def with_tensor_lists(ops: pl.DataFrame, path: Path) -> pl.DataFrame:
    """`ops`, a trace's rows with their external_id, with what the file at `path` has of them.

    An operator whose arguments do not fit the lists there stays as it is. Products get the column
    multiplied.
    """
    recorded = msgspec.json.decode(path.read_bytes(), type=RecordedLists)
    ops = _with_multiplied(ops, recorded.multiplied)
    lists = recorded.by_external_id
    concerned = pl.col("external_id").is_in(list(lists)) & pl.col("input_types").str.contains(
        LIST, literal=True
    )
    rows = []
    # An external id may be that of an operator and of an annotation.
    for row in ops.with_row_index("row").filter(concerned).iter_rows(named=True):
        completed = _completed(row, lists[row["external_id"]])
        if completed is not None:
            rows.append((row["row"], *completed))
    if not rows:
        return ops
    complete = pl.DataFrame(
        rows,
        schema={"row": pl.UInt32, **{f"complete_{name}": pl.String for name in _COLUMNS}},
        orient="row",
    )
    return (
        ops.with_row_index("row")
        .join(complete, on="row", how="left", maintain_order="left")
        .with_columns(pl.coalesce(f"complete_{name}", name).alias(name) for name in _COLUMNS)
        .select(ops.columns)
    )


def _with_multiplied(ops: pl.DataFrame, multiplied: Mapping[int, int]) -> pl.DataFrame:
    known = pl.DataFrame(
        {"external_id": list(multiplied), "multiplied": list(multiplied.values())},
        schema={"external_id": ops.schema["external_id"], "multiplied": pl.Int64},
    )
    found = ops.join(known, on="external_id", how="left", maintain_order="left")
    # An annotation may have the id of an operator.
    is_product = pl.col("input_dims").is_not_null()
    return found.with_columns(pl.when(is_product).then("multiplied").alias("multiplied"))


def _completed(
    row: dict[str, str | None], lists: tuple[RecordedList | None, ...]
) -> tuple[str, str, str] | None:
    """The three columns of `row` as JSON text with `lists` in them; None where they do not fit."""
    dims, types, strides = (msgspec.json.decode(row[name] or "[]") for name in _COLUMNS)
    if not len(dims) == len(types) == len(strides) == len(lists):
        return None
    for position, found in enumerate(lists):
        if found is None:
            continue
        if types[position] != LIST:
            return None
        dims[position], strides[position] = found.shapes, found.strides
        types[position] = f"{LIST}[{','.join(_distinct(found.dtypes))}]"
    texts = tuple(msgspec.json.encode(value).decode() for value in (dims, types, strides))
    return texts[0], texts[1], texts[2]


def _distinct(dtypes: list[str]) -> list[str]:
    """The one that all are, or all."""
    return dtypes[:1] if len(set(dtypes)) == 1 else dtypes
