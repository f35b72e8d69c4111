"""Text and tables of rich, made to fit a terminal before they are laid out."""

from copy import copy
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Span, Text

from gpuprof.reports.console.characters import drawable, is_drawable

# A column of names is made no narrower than this; then a table runs over the right edge.
_NARROWEST_NAME: Final = 12
# SIMPLE_HEAD without its rule of box-drawing characters. Rich would draw a full grid.
_ASCII_HEAD: Final = Box("    \n" * 2 + " -- \n" + "    \n" * 5, ascii=True)


@dataclass(frozen=True)
class Page:
    """What there is to draw on."""

    # In columns.
    width: int
    encoding: str


def fitted(content: RenderableType, page: Page) -> RenderableType:
    """`content` with characters that the page has, and tables in which no figure is cut."""
    if isinstance(content, str):
        return drawable(content, page.encoding)
    if isinstance(content, Text):
        return fitted_text(content, page.encoding)
    if isinstance(content, Table):
        return fitted_table(content, page)
    if isinstance(content, Padding):
        inside = Page(page.width - content.left - content.right, page.encoding)
        sides = (content.top, content.right, content.bottom, content.left)
        return Padding(fitted(content.renderable, inside), sides, expand=False)
    return content


def fitted_text(text: Text, encoding: str) -> Text:
    """`text` in characters that `encoding` has, each styled as the one that it stands for."""
    if is_drawable(text.plain, encoding):
        return text
    drawn = [drawable(letter, encoding) for letter in text.plain]
    starts = [0]
    for letters in drawn:
        starts.append(starts[-1] + len(letters))
    same = text.copy()
    same.plain = "".join(drawn)
    same.spans = [Span(starts[span.start], starts[span.end], span.style) for span in text.spans]
    return same


def fitted_table(table: Table, page: Page) -> Table:
    """`table` with columns that do not wrap as wide as their longest cell.

    Columns that wrap or shorten their text share the rest. Where too little of that is left the
    table is wider than the page: a line that runs over tells more than a figure without its end.
    """
    same = copy(table)
    same.columns, same.rows = [], []
    if table.title is not None:
        same.title = fitted(table.title, page)  # type: ignore[assignment]
    if table.caption is not None:
        same.caption = fitted(table.caption, page)  # type: ignore[assignment]
    if table.box is SIMPLE_HEAD and not page.encoding.lower().startswith("utf"):
        same.box = _ASCII_HEAD
    cells = [[fitted(cell, page) for cell in column.cells] for column in table.columns]
    for column, own in zip(table.columns, cells, strict=True):
        fresh = column.copy()
        fresh.header = fitted(column.header, page)
        widest = _widest([fresh.header, *own])
        least = widest if _is_whole(column) else min(widest, _NARROWEST_NAME)
        fresh.min_width = max(least, column.min_width or 0)
        same.columns.append(fresh)
    _shorten(same, cells, page.width)
    for row, line in zip(table.rows, zip(*cells, strict=True), strict=True):
        same.add_row(*line, style=row.style, end_section=row.end_section)
    return same


def _is_whole(column: Column) -> bool:
    """Whether the text of `column` is neither wrapped nor shortened, as figures must not be."""
    return column.no_wrap and column.overflow != "ellipsis"


def _widest(cells: list[RenderableType]) -> int:
    texts = (cell.plain if isinstance(cell, Text) else str(cell) for cell in cells)
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


def _shorten(table: Table, cells: list[list[RenderableType]], width: int) -> None:
    """Give columns that shorten their text what the others leave: rich cuts all of them alike."""
    between = sum(table.padding[1::2]) * len(table.columns) + len(table.columns)
    for column, own in zip(table.columns, cells, strict=True):
        if not column.no_wrap or _is_whole(column):
            continue
        others = sum(one.min_width or 0 for one in table.columns if one is not column)
        room = max(_NARROWEST_NAME, width - between - others)
        column.max_width = min(room, column.max_width or room, _widest([column.header, *own]))
        column.min_width = column.max_width
