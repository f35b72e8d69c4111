"""Rows of a block as numpy's columns, and those of all blocks as one table.

A trace of 1 GB has five hundred blocks: a table of polars for each took as long as decoding a
fourth of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.collectors.kineto.file_texts import TextNumbers, Texts

# Stands for "no value" in a column of integers; texts have the number 0.
NO_VALUE: Final = -(2**63)
_NO_TEXT: Final = 0
CellColumn: TypeAlias = Integers | TextNumbers


@dataclass(frozen=True)
class Cells:
    """Rows of one table. A column that is not there has no value in any row."""

    columns: dict[str, CellColumn]
    height: int
    texts: Texts

    def select(self, names: Sequence[str]) -> "Cells":
        """The same rows with those of the columns `names` that they have."""
        found = {name: self.columns[name] for name in names if name in self.columns}
        return Cells(found, self.height, self.texts)

    def rows(self, chosen: npt.NDArray[np.bool_]) -> "Cells":
        """The rows that are `chosen`."""
        found = {name: column[chosen] for name, column in self.columns.items()}
        return Cells(found, int(chosen.sum()), self.texts)


def stacked(parts: Sequence[Cells], schema: pl.Schema) -> pl.DataFrame:
    """The rows of `parts`, which have the same texts, one part after the other.

    Their columns are given up, so that they are not held beside those of the table.
    """
    names = [name for name in schema if any(name in part.columns for part in parts)]
    return pl.DataFrame([_stacked_column(name, schema[name], parts) for name in names])


def _stacked_column(name: str, dtype: pl.DataType, parts: Sequence[Cells]) -> pl.Series:
    is_text = dtype == pl.String
    none = np.uint32(_NO_TEXT) if is_text else np.int64(NO_VALUE)
    cells = np.concatenate(
        [
            np.full(part.height, none) if found is None else found
            for part in parts
            for found in [part.columns.pop(name, None)]
        ]
    )
    if is_text:
        return parts[0].texts.of(pl.Series(name, cells))
    absent = cells == NO_VALUE
    values = pl.Series(name, cells)
    return values.set(pl.Series(absent), None) if absent.any() else values
