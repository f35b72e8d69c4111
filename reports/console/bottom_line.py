"""One line at the bottom of a terminal that somebody else writes to at the same time.

The rows above it are made the terminal's scrolling region (DECSTBM), so what the others write goes
on there as if the terminal had one row less, and nothing of it has to be intercepted. Each change
is one short write, in which the cursor, its colours and its place are kept (DECSC, DECRC).
"""

import os
import termios
from contextlib import suppress
from typing import Final, TextIO

from gpuprof.collectors.plain_text import printable
from gpuprof.reports.console.characters import drawable
from gpuprof.reports.console.streams import OutputStream

# On fewer there would be no room for a program's own output.
_LEAST_ROWS: Final = 5
_LEAST_COLUMNS: Final = 20
_SAVE_CURSOR: Final = "\x1b7"
_RESTORE_CURSOR: Final = "\x1b8"
_WHOLE_SCREEN: Final = "\x1b[r"
# Down a row, which scrolls where the cursor is in the last one, and up again.
_LEAVE_LAST_ROW: Final = "\x1bD\x1b[A"
_CLEAR_ROW: Final = "\x1b[2K"
# From the row below the cursor to the end.
_CLEAR_BELOW: Final = "\x1b[E\x1b[J"
_PLAIN: Final = "\x1b[m"
# The index of the local modes in what `tcgetattr` returns.
_LOCAL_MODES: Final = 3


class BottomLine:
    """The last row of a `terminal`, to which `process` writes as well."""

    def __init__(self, terminal: TextIO, process: int) -> None:
        self._descriptor = terminal.fileno()
        self._encoding = OutputStream(terminal).encoding
        self._process = process
        # Rows and columns as the region was made for; None while there is none.
        self._size: tuple[int, int] | None = None

    def show(self, text: str) -> None:
        """Show `text`, cut at the right edge, or nothing while the terminal is not to be touched.

        Raises `OSError` where the terminal is gone.
        """
        columns, rows = os.get_terminal_size(self._descriptor)
        if rows < _LEAST_ROWS or columns < _LEAST_COLUMNS or not self._is_in_foreground():
            self.hide()
            return
        if self._somebody_edits():
            self._give_rows_back()
            return
        parts = []
        if self._size != (rows, columns):
            parts += [_SAVE_CURSOR, _WHOLE_SCREEN, _RESTORE_CURSOR, _LEAVE_LAST_ROW]
            if self._size is not None:
                # A terminal that has grown has the line further up.
                parts += [_SAVE_CURSOR, _CLEAR_BELOW, _RESTORE_CURSOR]
            self._size = (rows, columns)
        shown = drawable(printable(text), self._encoding)[: columns - 1]
        parts += [_SAVE_CURSOR, f"\x1b[1;{rows - 1}r", f"\x1b[{rows};1H", _PLAIN, _CLEAR_ROW]
        self._write(*parts, shown, _RESTORE_CURSOR)

    def hide(self) -> None:
        """Remove the line and leave the terminal as it was."""
        if self._size is None:
            return
        rows, _ = self._size
        self._size = None
        with suppress(OSError):
            self._write(
                *(_SAVE_CURSOR, _WHOLE_SCREEN, f"\x1b[{rows};1H", _PLAIN, _CLEAR_ROW),
                _RESTORE_CURSOR,
            )

    def _give_rows_back(self) -> None:
        """Touch nothing of what another program has drawn meanwhile."""
        if self._size is not None:
            self._size = None
            self._write(_SAVE_CURSOR, _WHOLE_SCREEN, _RESTORE_CURSOR)

    def _is_in_foreground(self) -> bool:
        """Whether the terminal is the program's now, and not a shell's that has suspended it."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgid(self._process)
        except OSError:
            # A launcher may have begun a session of its own, which shares the terminal.
            return True

    def _somebody_edits(self) -> bool:
        """Whether a program takes keys one by one: an editor, a pager, a debugger's prompt."""
        modes: int = termios.tcgetattr(self._descriptor)[_LOCAL_MODES]
        return not modes & termios.ICANON

    def _write(self, *parts: str) -> None:
        # As one write, which no other can divide.
        os.write(self._descriptor, "".join(parts).encode(self._encoding, "replace"))
