"""What a person sees on a terminal, by emulating one."""

import fcntl
import os
import struct
import termios
from collections.abc import Callable

import pyte

ROWS = 24
COLUMNS = 100


class TerminalScreen:
    """A screen that is fed with what a process writes to its terminal."""

    def __init__(self, rows: int = ROWS, columns: int = COLUMNS) -> None:
        self.written = b""
        self.screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.ByteStream(self.screen)

    def feed(self, piece: bytes) -> None:
        self.written += piece
        self._stream.feed(piece)

    @property
    def rows(self) -> list[str]:
        """What is on the screen now."""
        return [row.rstrip() for row in self.screen.display]

    @property
    def scrolled_away(self) -> list[str]:
        """Rows that have left the screen at its top, the first first."""
        return [
            "".join(row[column].data for column in range(self.screen.columns)).rstrip()
            for row in self.screen.history.top
        ]

    def read_all(self, descriptor: int, looked: Callable[[], None] = lambda: None) -> None:
        """Read the terminal's end `descriptor` until the other is closed; look after each piece."""
        try:
            while piece := os.read(descriptor, 65536):
                self.feed(piece)
                looked()
        except OSError:
            # Linux says that the other end closed.
            pass


def set_size(descriptor: int, rows: int = ROWS, columns: int = COLUMNS) -> None:
    """Make the terminal behind `descriptor` as large as this."""
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
