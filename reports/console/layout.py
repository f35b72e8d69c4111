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

from gpuprof.reports.console.characters import shown

# A column of names is made no narrower than this; then a table runs over the right edge.
_NARROWEST_NAME: Final = 10
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
        return shown(content, page.encoding)
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
    """`text` as a terminal shows it, each character styled as the one that it stands for."""
    if shown(text.plain, encoding) == text.plain:
        return text
    drawn = [shown(letter, encoding) for letter in text.plain]
    starts = [0]
    for letters in drawn:
        starts.append(starts[-1] + len(letters))
    same = text.copy()
    same.plain = "".join(drawn)
    same.spans = [Span(starts[span.start], starts[span.end], span.style) for span in text.spans]
    return same


def fitted_table(table: Table, page: Page) -> Table:
    """`table` with columns of `no_wrap` as wide as their longest cell, such as figures.

    One that has a `max_width` too is shortened instead; columns that wrap share the rest. Where
    too little of that is left, columns move together, and names and dates wrap between their
    words. If need be the table is wider than the page: a line that runs over tells more than a
    figure without its end.
    """
    same = copy(table)
    same.columns, same.rows = [], []
    if isinstance(table.title, (str, Text)):
        same.title = _line(table.title, page)
    if isinstance(table.caption, (str, Text)):
        same.caption = _line(table.caption, page)
    if table.box is SIMPLE_HEAD and not page.encoding.lower().startswith("utf"):
        same.box = _ASCII_HEAD
    cells = [[fitted(cell, page) for cell in column.cells] for column in table.columns]
    widest = []
    for column, own in zip(table.columns, cells, strict=True):
        fresh = column.copy()
        fresh.header = fitted(column.header, page)
        widest.append(_widest([fresh.header, *own]))
        least = widest[-1] if _is_whole(column) else min(widest[-1], _NARROWEST_NAME)
        fresh.min_width = max(least, column.min_width or 0)
        if not column.no_wrap:
            # Rich's default cuts a long word.
            fresh.overflow = "fold"
        same.columns.append(fresh)
    if _least_width(same) > page.width and table.box is not None:
        # The box has a blank between columns.
        same.padding = 0
    if _least_width(same) > page.width:
        _let_words_wrap(same, cells)
    room = page.width - _least_width(same)
    for column, natural in zip(same.columns, widest, strict=True):
        if column.no_wrap and not _is_whole(column) and column.min_width is not None:
            limit = min(natural, column.max_width or natural)
            column.max_width = column.min_width = max(
                column.min_width, min(limit, column.min_width + room)
            )
    for row, line in zip(table.rows, zip(*cells, strict=True), strict=True):
        same.add_row(*line, style=row.style, end_section=row.end_section)
    return same


def _let_words_wrap(table: Table, cells: list[list[RenderableType]]) -> None:
    """Let columns that are not figures wrap between words, such as dates."""
    for column, own in zip(table.columns, cells, strict=True):
        if _is_whole(column) and column.justify == "left":
            column.no_wrap, column.overflow = False, "fold"
            column.min_width = _widest([column.header, *own], apart=" ")


def _line(text: str | Text, page: Page) -> str | Text:
    return (
        fitted_text(text, page.encoding) if isinstance(text, Text) else shown(text, page.encoding)
    )


def _is_whole(column: Column) -> bool:
    """Whether the text of `column` is neither wrapped nor shortened, as figures must not be."""
    return column.no_wrap and column.max_width is None


def _widest(cells: list[RenderableType], apart: str = "\n") -> int:
    """Of the lines of `cells`, or of what else stands `apart`."""
    texts = (cell.plain if isinstance(cell, Text) else str(cell) for cell in cells)
    parts = (part for text in texts for line in text.split("\n") for part in line.split(apart))
    return max(map(cell_len, parts), default=0)


def _least_width(table: Table) -> int:
    """Columns of a page that `table` takes with each of its columns at its narrowest."""
    count = len(table.columns)
    if count == 0:
        return 0
    _, right, _, left = table.padding
    beside = count * (left + right) if table.pad_edge else (count - 1) * (left + right)
    lines = 0 if table.box is None else count - 1 + (2 if table.show_edge else 0)
    return sum(column.min_width or 0 for column in table.columns) + beside + lines
