"""Rows of a table of a capture, made one by one from what another tool recorded."""

from typing import Any, Final

import polars as pl

from gpuprof.collectors import schema

# As dictionaries they take ten times as much memory as in a frame.
_AT_ONCE: Final = 10_000
_STACK: Final = "stack"


class TableRows:
    """The rows of one table, of which few are held as dictionaries and each stack once."""

    def __init__(self, table: str, most: int) -> None:
        """`most` is how many there may be."""
        self._types = dict(schema.TABLES[table])
        if _STACK in self._types:
            self._types[_STACK] = pl.Int64()
        self._most = most
        self._rows: list[dict[str, Any]] = []
        self._parts: list[pl.DataFrame] = []
        # Numbers of the texts of stacks.
        self._stacks: dict[str, int] = {}

    def add(self, row: dict[str, Any]) -> None:
        """Take one in. Raises `ValueError` where there are too many, and polars' errors."""
        self._most -= 1
        if self._most < 0:
            raise ValueError("too many rows")
        stack = row.get(_STACK)
        if stack is not None:
            row = {**row, _STACK: self._stacks.setdefault(stack, len(self._stacks))}
        self._rows.append(row)
        if len(self._rows) == _AT_ONCE:
            self._take_over()

    def frame(self) -> pl.DataFrame:
        """All of them in their order. Raises polars' errors where values are of other types."""
        self._take_over()
        frame = pl.concat(self._parts, rechunk=True)
        if _STACK in self._types:
            # Views of one text of each.
            texts = pl.Series(_STACK, list(self._stacks), dtype=pl.String)
            frame = frame.with_columns(texts.gather(frame[_STACK]).alias(_STACK))
        return frame

    def _take_over(self) -> None:
        self._parts.append(pl.DataFrame(self._rows, schema=self._types))
        self._rows = []
