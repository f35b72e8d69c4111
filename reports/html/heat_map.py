"""A value by row and column as shades of one colour, as an SVG."""

from dataclasses import dataclass
from typing import Final

from gpuprof.reports.blocks import HeatMap
from gpuprof.reports.formatting import duration

WIDTH: Final = 760
_LEFT, _TOP = 118, 22
_MOST_CELL_WIDTH: Final = 90
_ROW_HEIGHT, _LEAST_ROW_HEIGHT = 16, 7
# Rows from which on they are drawn low.
_MANY_ROWS: Final = 24
# Between two labels of rows, and about the width of a letter.
_LABEL_ROOM: Final = 13
_LETTER: Final = 6.8
_SHADES: Final = 9


@dataclass(frozen=True)
class Cell:
    """One value: its place, its shade from 0 to 9 ("unknown" without one), and its words."""

    x: float
    y: float
    shade: str
    text: str


@dataclass(frozen=True)
class Label:
    """The words of a row or column, and where they stand."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class HeatMapLayout:
    """Where everything goes, in the units of the SVG's view box."""

    width: int
    height: int
    cell_width: float
    cell_height: float
    cells: tuple[Cell, ...]
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    # The shades, with the values of the least and the largest.
    scale: tuple[Cell, ...]
    largest: str


def make_heat_map(block: HeatMap) -> HeatMapLayout:
    """The drawing of `block`, which has at least one row and column."""
    largest = max((value for row in block.values for value in row if value is not None), default=0)
    rows, columns = len(block.row_heads), len(block.column_heads)
    width = min((WIDTH - _LEFT) / columns, _MOST_CELL_WIDTH)
    height = _ROW_HEIGHT if rows <= _MANY_ROWS else _LEAST_ROW_HEIGHT
    cells = tuple(
        Cell(
            round(_LEFT + column * width, 1),
            _TOP + row * height,
            _shade(value, largest),
            block.notes[row][column],
        )
        for row, values in enumerate(block.values)
        for column, value in enumerate(values)
    )
    bottom = _TOP + rows * height
    every_row = -(-_LABEL_ROOM // height)
    longest = max(map(len, block.column_heads)) * _LETTER
    every_column = int(-(-longest // width))
    return HeatMapLayout(
        width=WIDTH,
        height=bottom + 30,
        cell_width=round(width, 1),
        cell_height=height,
        cells=cells,
        rows=tuple(
            Label(_LEFT - 6, _TOP + row * height + height / 2 + 4, block.row_heads[row])
            for row in range(0, rows, every_row)
        ),
        columns=tuple(
            Label(round(_LEFT + column * width, 1), _TOP - 7, block.column_heads[column])
            for column in range(0, columns, every_column)
        ),
        scale=tuple(
            Cell(_LEFT + shade * 14, bottom + 12, str(shade), "") for shade in range(_SHADES + 1)
        ),
        largest=duration(largest),
    )


def _shade(value: int | None, largest: int) -> str:
    if value is None:
        return "unknown"
    return str(round(_SHADES * value / largest)) if largest else "0"
