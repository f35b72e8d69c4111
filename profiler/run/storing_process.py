"""Has captures stored by a process of its own, so that the program goes on meanwhile.

Reading a trace and analysing it holds the interpreter's lock for as long as it takes, and needs
libraries, memory and descriptors, which a program may have used up, replaced or hidden by then. The
process is started before the program is, and lies idle until it is asked. It is nobody's child, so
that a program which waits for any child of its own, or counts them, never meets it.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpuprof.collectors.errors import CollectorError
from gpuprof.profiler.log import verbosity
from gpuprof.profiler.run.live_state import LiveState
from gpuprof.profiler.run.rank_marks import RankMarks
from gpuprof.profiler.run.recorded import Recorded
from gpuprof.profiler.run.storing_messages import (
    Done,
    Farewell,
    Hurry,
    ShowLine,
    SkipEarly,
    StoreAside,
    StoredAside,
    StoredEarly,
    StoreEarly,
    StoreFinal,
    WatchRank,
    receive,
    send,
)

# The shell ends at once, and init adopts what it has started.
_SHELL: Final = ("/bin/sh", "-c", '"$@" &', "sh")
_START: Final = (
    "import sys; number, encoding, verbosity, *sys.path[:] = sys.argv[1:]; "
    "from gpuprof.profiler.run.storing_server import main; "
    "main(int(number), encoding, int(verbosity))"
)


class StoringProcess:
    """The running program's side."""

    def __init__(self, live: LiveState | None = None) -> None:
        """Start the process; where that fails `store_final` says so by its result.

        `live` is what `show_line` shows.
        """
        self._live = live
        self._connection: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        # The capture of the profiled steps, where there is one, once `take_early` was called.
        self.stored_early: Path | None = None
        self._early: Recorded | None = None
        self._final_asked = False
        self._hurried = False
        with suppress(OSError, subprocess.SubprocessError):
            self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            paths = [os.path.abspath(path) for path in sys.path]
            encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
            # Without site, as sys.path is given, and the PYTHON variables, which are the program's.
            python = [sys.executable, "-E", "-S", "-c", _START, str(theirs.fileno()), encoding]
            python.append(str(verbosity()))
            shared = [] if self._live is None else [self._live.descriptor]
            started = subprocess.run(
                [*_SHELL, *python, *paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *shared),
                check=False,
            )
        if started.returncode == 0:
            self._connection, self._identity = ours, _identity(ours)

    def watch_rank(self, marks: RankMarks) -> None:
        """Let the other ranks know of this one, also how its process ends where it is killed."""
        self._ask(WatchRank(marks, os.getpid()))

    def show_line(self, planned_steps: Mapping[str, int]) -> None:
        """Let the terminal show how far the program is, until its capture is stored."""
        if self._live is not None:
            self._ask(ShowLine(self._live.descriptor, os.getpid(), planned_steps))
            self._live.close_descriptor()

    def store_early(self, recorded: Recorded) -> None:
        """Ask for the early capture and return at once.

        Raises `CollectorError` where there is nobody to ask.
        """
        if not self._ask(StoreEarly(recorded)):
            raise CollectorError("the process that stores the capture has ended")
        self._early = recorded

    def take_early(self) -> str:
        """End the early capture, if one was asked for; returns what went wrong, or ""."""
        if self._early is None:
            return ""
        recorded, self._early = self._early, None
        self._ask(SkipEarly())
        answer = self._answer()
        if not isinstance(answer, StoredEarly):
            return "the process that stores the capture has ended"
        recorded.subject.output.adopt(answer.output)
        if answer.output.stored:
            self.stored_early = answer.output.shown
        return answer.problem

    def store_aside(self, recorded: Recorded) -> StoredAside | None:
        """Have one capture of several stored; None where nobody is there to do it."""
        answer = self._answer() if self._ask(StoreAside(recorded)) else None
        return answer if isinstance(answer, StoredAside) else None

    def store_final(self, recorded: Recorded, *, quiet: bool) -> Done | None:
        """Have the whole run stored and told about; None where nobody is there to do it."""
        if not self._ask(StoreFinal(recorded, quiet)):
            return None
        self._final_asked = True
        if self._hurried:
            self.hurry()
        answer = self._answer()
        return answer if isinstance(answer, Done) else None

    def hurry(self) -> None:
        """Do not wait for other ranks any longer; may interrupt the other methods."""
        self._hurried = True
        if self._final_asked:
            self._ask(Hurry())

    def close(self) -> None:
        """Let the process end, though children of the program may have the connection too."""
        self._ask(Farewell())
        connection, self._connection = self._usable(), None
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _ask(self, message: object) -> bool:
        connection = self._usable()
        if connection is None:
            return False
        try:
            send(connection, message)
        except OSError:
            return False
        return True

    def _answer(self) -> object:
        connection = self._usable()
        if connection is None:
            return None
        try:
            return receive(connection)
        except OSError:
            return None

    def _usable(self) -> socket.socket | None:
        """The connection, unless the program closed it and perhaps opened something there."""
        if self._connection is None or _identity(self._connection) != self._identity:
            return None
        return self._connection


def _identity(connection: socket.socket) -> tuple[int, int] | None:
    try:
        found = os.fstat(connection.fileno())
    except OSError:
        return None
    return found.st_dev, found.st_ino
