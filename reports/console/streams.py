"""stdout and stderr as every command writes to them. Imports nothing heavy.

What a command prints on stdout is its product: where it cannot be written, the command ends. What
it says on stderr is beside the matter, and is lost where nobody listens.
"""

import io
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TextIO, cast

from gpuprof.collectors.errors import CommandError, problem_of
from gpuprof.collectors.plain_text import printable
from gpuprof.reports.console.characters import drawable, without_commands

# Blanks and the codes of colours, up to a line end.
_BLANKS = re.compile(r"(?: |\x1b\[[0-9;]*m)+(?=\n)")


def write_line(text: str = "") -> None:
    """Print `text` as one line on stdout, neither wrapped nor cut.

    Raises `BrokenPipeError` where nobody reads any more, and `CommandError` where it can't be
    written otherwise, as to a full disk.
    """
    OutputStream(sys.stdout).write(f"{printable(text)}\n")


def write_note(text: str) -> None:
    """Print `text` as one line on stderr. Raises nothing."""
    NoteStream(sys.stderr).write(f"{printable(text)}\n")


def write_commands(lines: str, *, on_stderr: bool) -> None:
    """Print lines that are commands to a CI system, which nothing else printed can be.

    On stdout raises as `write_line`.
    """
    stream = NoteStream(sys.stderr) if on_stderr else OutputStream(sys.stdout)
    stream.write_commands(lines)


def write_bytes(content: bytes) -> None:
    """Write `content` to stdout as it is: JSON and HTML are UTF-8 whatever a terminal can show.

    Raises as `write_line`.
    """
    if sys.stdout is None:
        return
    flush()
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(error, sys.stdout) from error


def flush() -> None:
    """Write out what stdout still holds. Raises as `write_line`."""
    OutputStream(sys.stdout).flush()


def discard(stream: TextIO | None) -> None:
    """Let `stream` lead nowhere: python would complain at its end of what it still can't write."""
    # Without a descriptor, as a stream of a test, there is nothing to be done.
    with suppress(OSError, ValueError, AttributeError):
        descriptor = cast(TextIO, stream).fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, descriptor)
        finally:
            os.close(nowhere)


class OutputStream:
    """A text stream that lacks no character, and has no blanks at the end of a line.

    No line is a command to a CI system that reads it.

    `stream` is None where the process was started without it: what is written is lost then.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:
        """The stream's; that of one without, such as a string, is UTF-8.

        Python takes the locale C for UTF-8; a terminal that was given it shows ASCII.
        """
        encoding = getattr(self._stream, "encoding", None)
        if encoding is None:
            return "utf-8"
        return "ascii" if encoding.startswith("utf") and asks_for_ascii(os.environ) else encoding

    def isatty(self) -> bool:
        """Whether it is a terminal. False for a closed one."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:
            return False

    def write(self, text: str) -> int:
        """Write `text`, drawn as the stream can show it. Raises as `write_line`."""
        self._put(without_commands(without_trailing_blanks(text)))
        return len(text)

    def write_commands(self, lines: str) -> None:
        """Write `lines`, which a CI system may take for commands. Raises as `write_line`."""
        self._put(lines)

    def _put(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(drawable(text, self.encoding))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(error, self._stream) from error

    def flush(self) -> None:
        """Raises as `write_line`."""
        if self._stream is None or self._stream.closed:
            return
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(error, self._stream) from error


class NoteStream(OutputStream):
    """An `OutputStream` that never raises, and holds nothing back."""

    def _put(self, text: str) -> None:
        self._attempt(lambda: super(NoteStream, self)._put(text))
        self.flush()

    def flush(self) -> None:
        """Write out what the stream holds, if possible."""
        self._attempt(super().flush)

    def _attempt(self, write: Callable[[], object]) -> None:
        # ValueError: the program that was profiled closed the stream.
        with suppress(ValueError, CommandError):
            try:
                write()
            except BrokenPipeError:
                discard(self._stream)


def own_stderr() -> TextIO:
    """A stream to where stderr leads now, whatever the program does to its own; or to nowhere."""
    try:
        encoding = sys.stderr.encoding
        descriptor = os.dup(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return io.StringIO()
    return open(descriptor, "w", buffering=1, encoding=encoding, errors="replace")


def asks_for_ascii(environment: Mapping[str, str]) -> bool:
    """Whether the locale of `environment` is C, as it says itself."""
    if environment.get("PYTHONIOENCODING") or environment.get("PYTHONUTF8"):
        return False
    chosen = environment.get("LC_ALL") or environment.get("LC_CTYPE")
    # Python itself puts these where LANG alone says C (PEP 538).
    if not environment.get("LC_ALL") and chosen in ("C.UTF-8", "C.utf8", "UTF-8"):
        chosen = None
    return (chosen or environment.get("LANG")) in ("C", "POSIX")


def without_trailing_blanks(text: str) -> str:
    """`text` without blanks before line ends, also where colours are switched in between."""
    return _BLANKS.sub(lambda found: found[0].replace(" ", ""), text)


def _unwritable(error: OSError, stream: TextIO | None) -> CommandError:
    discard(stream)
    return CommandError(f"stdout: {problem_of(error)}")
