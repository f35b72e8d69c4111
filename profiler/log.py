"""What gpuprof says of its own work: the logger `gpuprof`, on stderr with `-v`.

Other programs that use gpuprof configure that logger as any other. The command line does not let
its records go on to the root logger: a program that `gpuprof run` runs may show all that comes
there, and would print ours among its own.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from gpuprof.collectors.plain_text import printable
from gpuprof.reports.console.streams import NoteStream, own_stderr

_ROOT: Final = "gpuprof"
_FORMAT: Final = "%(asctime)s.%(msecs)03d %(name)s: %(message)s"
_TIME: Final = "%H:%M:%S"
_verbosity = 0


def write_log(level: int) -> None:
    """Show on stderr as it is now what is done (1), and in detail (2); with 0 nothing."""
    global _verbosity
    _verbosity = level
    logger = logging.getLogger(_ROOT)
    logger.propagate = False
    for old in tuple(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.addHandler(_StderrHandler() if level > 0 else logging.NullHandler())
    logger.setLevel(logging.DEBUG if level > 1 else logging.INFO if level else logging.NOTSET)


def verbosity() -> int:
    """What `write_log` was told last, for another process of the same command."""
    return _verbosity


class _StderrHandler(logging.Handler):
    """Writes to stderr as it was when this was made; a program may take it away later."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT, _TIME))
        self._stderr = own_stderr()
        self._notes = NoteStream(self._stderr)

    def emit(self, record: logging.LogRecord) -> None:
        """One record is one line, and its traceback."""
        lines = self.format(record).split("\n")
        self._notes.write("".join(f"{printable(line)}\n" for line in lines))

    def close(self) -> None:
        """See `logging.Handler`."""
        with suppress(OSError):
            self._stderr.close()
        super().close()


@contextmanager
def timed(logger: logging.Logger, what: str) -> Iterator[None]:
    """Log how long the block takes, by the name `what`."""
    begun = time.perf_counter()
    yield
    logger.info("%s: %.3f s", what, time.perf_counter() - begun)
