"""The process that stores captures for `gpuprof run`: see `storing_process`.

It imports nothing heavy itself. For each request it forks a child, which does the work and is gone
again with all the memory that took.
"""

import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from gpuprof.collectors.errors import describe
from gpuprof.collectors.files.temporary import in_use
from gpuprof.profiler.log import write_log
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
from gpuprof.profiler.run.surroundings import give_way
from gpuprof.profiler.run.watched_rank import WatchedRank
from gpuprof.reports.console.streams import write_note

if TYPE_CHECKING:
    from gpuprof.profiler.run.live_drawing import LiveDrawing

# Of a Linux socket's peer: process, user and group.
_PEER: Final = struct.Struct("iII")
# Freeing a GPU's memory may take long.
_DYING_MS: Final = 10_000
_NOTHING_STORED: Final = (
    "gpuprof: the program was killed before anything of it had been stored; there is no capture"
)
_SKIP: Final = signal.SIGUSR1


def main(descriptor: int, encoding: str, verbosity: int) -> None:
    """Do what comes over the socket `descriptor` until its other end is closed."""
    # What a terminal sends is for the program. Not a new session: the scheduler would give that as
    # much time as the program's, however low its priority.
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    # A child has it wait until it can act on it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [_SKIP])
    if sys.stderr is not None:
        sys.stderr.reconfigure(encoding=encoding, errors="replace")  # type: ignore[union-attr]
    write_log(verbosity)
    with socket.socket(fileno=descriptor) as connection:
        _serve(connection)


def _serve(connection: socket.socket) -> None:
    watched: WatchedRank | None = None
    line: LiveDrawing | None = None
    program, message = _Program(connection), None
    # What there is of the program if it dies now.
    safe = False
    try:
        while not isinstance(message, Farewell):
            message = _next(connection, watched)
            if message is None:
                if not safe and watched is None and program.is_dead():
                    write_note(_NOTHING_STORED)
                break
            if isinstance(message, (Hurry, SkipEarly, Farewell)):
                # What they are about has ended meanwhile.
                continue
            if isinstance(message, WatchRank):
                watched = WatchedRank(message.marks, message.process)
                watched.begin()
                continue
            if isinstance(message, ShowLine):
                line = _begin_line(message)
                continue
            # The program may be killed meanwhile.
            with in_use(message.recorded.seen.folder):
                status = _in_a_child(connection, message, line)
            if status != 0:
                _answer_for_the_dead(connection, message, status)
            else:
                # Also where nothing could be stored: that has been told.
                safe = True
                watched = None if isinstance(message, StoreFinal) else watched
    finally:
        if line is not None:
            line.stop()
    if watched is not None:
        watched.write_death()


class _Program:
    """The process at the other end, which is not our parent."""

    def __init__(self, connection: socket.socket) -> None:
        self._descriptor: int | None = None
        # It may be dead, and its parent know that, before this process has begun to serve.
        self._is_gone = False
        with suppress(AttributeError, OSError, struct.error):
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            try:
                self._descriptor = os.pidfd_open(_PEER.unpack(peer)[0])
            except ProcessLookupError:
                self._is_gone = True

    def is_dead(self) -> bool:
        """Whether it has ended, which comes a moment after its end of the connection was closed.

        A program may also close descriptors that it does not know, and go on.
        """
        if self._descriptor is None:
            return self._is_gone
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(_DYING_MS))


def _begin_line(message: ShowLine) -> "LiveDrawing":
    from gpuprof.profiler.run.live_drawing import LiveDrawing

    return LiveDrawing(message, sys.stderr)


def _next(connection: socket.socket, watched: WatchedRank | None) -> Any:
    """The next message; None where there will be none."""
    if watched is not None and watched.descriptor is not None:
        # Children of the program may have the connection, and live longer.
        poll = select.poll()
        for descriptor in (connection.fileno(), watched.descriptor):
            poll.register(descriptor, select.POLLIN)
        if connection.fileno() not in dict(poll.poll()):
            return None
    try:
        return receive(connection)
    except ConnectionResetError:
        # It ended without reading the last answer.
        return None


def _in_a_child(connection: socket.socket, message: Any, line: "LiveDrawing | None") -> int:
    ended, ends = os.pipe()
    child = os.fork()
    if child != 0:
        os.close(ends)
        if isinstance(message, StoreEarly):
            _skip_once_asked(connection, child, ended)
        os.close(ended)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        if isinstance(message, StoreEarly):
            _store_early(connection, message, line)
        elif isinstance(message, StoreAside):
            _store_aside(connection, message)
        else:
            _store_final(connection, message, line)
        status = 0
    finally:
        # Whatever happens, the child must not go on as the parent does.
        os._exit(status)


def _skip_once_asked(connection: socket.socket, child: int, ended: int) -> None:
    """Until `child`, which stores early, has ended and `ended` says so: hear whether it still must.

    Where other processes take all cores it has hardly any time, and the program waits for it.
    """
    poll = select.poll()
    for descriptor in (connection.fileno(), ended):
        poll.register(descriptor, select.POLLIN)
    if ended not in dict(poll.poll()) and isinstance(_next(connection, None), SkipEarly):
        os.kill(child, _SKIP)


def _store_early(
    connection: socket.socket, message: StoreEarly, line: "LiveDrawing | None"
) -> None:
    give_way()
    output, problem = message.recorded.subject.output, ""
    try:
        with _ending_once_skipped(lambda: _answer(connection, StoredEarly(output, ""))):
            from gpuprof.profiler.run.store_recorded import analysed_early, store_early

            analysed = analysed_early(message.recorded)
        if line is not None and analysed.analysis is not None:
            line.know(analysed.analysis)
        store_early(message.recorded, analysed)
    except BaseException as error:
        problem = describe(error)
    if not _answer(connection, StoredEarly(output, problem)) and problem:
        write_note(f"gpuprof: the program was killed, and nothing could be stored: {problem}")


def _store_aside(connection: socket.socket, message: StoreAside) -> None:
    give_way()
    output, problem = message.recorded.subject.output, ""
    try:
        from gpuprof.profiler.run.store_recorded import store_final

        problem = store_final(message.recorded).analysed.problem
    except BaseException as error:
        problem = describe(error)
    _answer(connection, StoredAside(output, problem))


@contextmanager
def _ending_once_skipped(answer: Callable[[], object]) -> Iterator[None]:
    """Within this context the signal to skip ends the process, after its answer; later it does not.

    An exception would be lost, and printed, where it is raised in a finaliser, as of the locks of
    imports. Nothing is written within the context.
    """

    def skip(*_: object) -> None:
        answer()
        os._exit(0)

    signal.signal(_SKIP, skip)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [_SKIP])
    try:
        yield
    finally:
        signal.signal(_SKIP, signal.SIG_IGN)


def _store_final(
    connection: socket.socket, message: StoreFinal, line: "LiveDrawing | None"
) -> None:
    from gpuprof.profiler.run.telling import store_and_tell

    hurry = threading.Event()
    threading.Thread(target=_listen, args=(connection, hurry), daemon=True).start()
    stored = store_and_tell(message.recorded, quiet=message.quiet, hurry=hurry)
    if line is not None:
        # Before the program ends, after which the terminal is somebody else's.
        line.stop()
    _answer(connection, Done(lost=not stored))


def _listen(connection: socket.socket, hurry: threading.Event) -> None:
    """Set `hurry` once asked to, or once nobody waits for the answer."""
    receive(connection)
    hurry.set()


def _answer_for_the_dead(connection: socket.socket, message: Any, status: int) -> None:
    if isinstance(message, StoreEarly):
        problem = f"the process that stores the capture ended with status {status}"
        _answer(connection, StoredEarly(message.recorded.subject.output, problem))
    elif isinstance(message, StoreAside):
        problem = f"the process that stores the capture ended with status {status}"
        _answer(connection, StoredAside(message.recorded.subject.output, problem))
    else:
        # The program's side stores it itself.
        sys.exit(1)


def _answer(connection: socket.socket, message: object) -> bool:
    """Whether anybody has heard it: the program may have ended meanwhile."""
    try:
        send(connection, message)
    except OSError:
        return False
    return True
