"""rich's console as every command uses it: for stdout, and for stderr."""

import os
import sys
from typing import Any, Final, TextIO, cast

from rich.console import Console

from gpuprof.reports.console.layout import Page, fitted
from gpuprof.reports.console.streams import NoteStream, OutputStream

# Tables are made for widths from here to there, in columns.
NARROWEST: Final = 60
WIDEST: Final = 200
_USUAL: Final = (80, 25)


class Terminal(Console):
    """A console that prints what its stream can show, wherever that leads.

    Text is text: neither rich's markup nor its emoji work in it. `NO_COLOR`, `FORCE_COLOR` and
    `TERM=dumb` are heeded.
    """

    def __init__(self, stream: OutputStream, *, plain_width: int | None = None) -> None:
        """With `plain_width` it prints plain text so many columns wide, as into a string."""
        width, height = terminal_size()
        colored = bool(os.environ.get("FORCE_COLOR")) or stream.isatty()
        super().__init__(
            file=cast(TextIO, stream),
            force_terminal=colored and plain_width is None,
            no_color=bool(os.environ.get("NO_COLOR")),
            width=plain_width or width,
            height=height,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's, with nothing cut at the right edge."""
        page = Page(self.width, self.encoding)
        super().print(*(fitted(one, page) for one in objects), **{"crop": False, **options})

    def on_broken_pipe(self) -> None:
        """Leave it to the command, as where no console is used."""
        raise BrokenPipeError


def stdout() -> Terminal:
    """A console on stdout as it is now. Its `print` raises as `streams.write_line`."""
    return Terminal(OutputStream(sys.stdout))


def stderr() -> Terminal:
    """A console on stderr as it is now; printing there never raises."""
    return Terminal(NoteStream(sys.stderr))


def terminal_size() -> tuple[int, int]:
    """Columns and lines: `COLUMNS`, else the terminal's, else 80; never too narrow for tables."""
    columns, lines = next(filter(None, map(_size_of, (1, 2, 0))), _USUAL)
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        columns = int(asked)
    return min(max(columns, NARROWEST), WIDEST), lines


def _size_of(descriptor: int) -> tuple[int, int] | None:
    try:
        size = os.get_terminal_size(descriptor)
    # ValueError: there is no such descriptor on Windows.
    except (OSError, ValueError):
        return None
    # A terminal that does not know its size says 0.
    return (size.columns, size.lines) if size.columns else None
