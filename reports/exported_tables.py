"""An analysis as flat tables, for spreadsheets and data frames.

Each list in the analysis is a table of its own, named by its place: `kernels`, `idle.causes`. What
lies within a row gets a column by its place in the row (`bytes.read`); lists within it are JSON in
one. Single figures are rows of the table `figures`. Names are those of `gpuprof report -o X.json`,
with their units; unknown is empty.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import polars as pl

from gpuprof.roofline.analysis import Analysis

FIGURES: Final = "figures"


def exported_tables(analysis: Analysis) -> dict[str, pl.DataFrame]:
    """The tables by name, in the order of the analysis; those without rows are left out."""
    tables: dict[str, pl.DataFrame] = {}
    figures: list[dict[str, Any]] = []
    # The time line's events are tables of the capture itself; here they would be lists in a cell.
    fields = msgspec.json.decode(
        msgspec.json.encode(msgspec.structs.replace(analysis, timeline=None))
    )
    for place, value in _leaves(fields, ""):
        if isinstance(value, list):
            rows = [dict(_columns(row)) for row in value if isinstance(row, dict)]
            if rows and len(rows) == len(value):
                tables[place] = _frame(rows)
                continue
        if value not in (None, []):
            figures.append({"name": place, "value": _text(value)})
    return {FIGURES: _frame(figures), **tables}


def as_csv(frame: pl.DataFrame) -> bytes:
    """`frame` as CSV in which a spreadsheet computes nothing: names come from anywhere.

    A text that begins as a formula does, and is no number, has an apostrophe in front.
    """
    text = pl.col(pl.String)
    is_number = text.str.contains(r"^-?[0-9][0-9.]*([eE][+-]?[0-9]+)?$")
    formula = text.str.contains(r"^[=+\-@\t\r]") & ~is_number
    shown = frame.with_columns(pl.when(formula).then("'" + text).otherwise(text).name.keep())
    return shown.write_csv().encode()


def _leaves(value: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    """All that is no object, with the names that lead to it."""
    for name, each in value.items():
        below = f"{place}.{name}" if place else name
        if isinstance(each, dict):
            yield from _leaves(each, below)
        else:
            yield below, each


def _columns(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in _leaves(row, ""):
        yield name, _text(value) if isinstance(value, list) else value


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Columns in the order in which rows have them first; of several kinds of values, text."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if kinds == {int, float}:
            columns.append(pl.Series(name, values, pl.Float64, strict=False))
        elif len(kinds) > 1:
            texts = [None if value is None else _text(value) for value in values]
            columns.append(pl.Series(name, texts, pl.String))
        else:
            columns.append(pl.Series(name, values))
    # A column of which nothing is known has no type.
    return pl.DataFrame(columns).with_columns(pl.col(pl.Null).cast(pl.String))
