"""The process that stores captures for `gpuprof run`: see `storing_process`.

It imports nothing heavy itself. For each request it forks a child, which does the work and is gone
again with all the memory that took.
"""

import os
import select
import signal
import socket
import sys
import threading
from typing import Any, Final

from gpuprof.collectors.errors import describe
from gpuprof.profiler.run.storing_messages import (
    Done,
    Hurry,
    StoredEarly,
    StoreEarly,
    StoreFinal,
    WatchRank,
    receive,
    send,
)
from gpuprof.profiler.run.watched_rank import WatchedRank

_NICENESS: Final = 19


def main(descriptor: int, encoding: str) -> None:
    """Do what comes over the socket `descriptor` until its other end is closed."""
    # What a terminal sends is for the program. Not a new session: the scheduler would give that as
    # much time as the program's, however low its priority.
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    if sys.stderr is not None:
        sys.stderr.reconfigure(encoding=encoding, errors="replace")  # type: ignore[union-attr]
    with socket.socket(fileno=descriptor) as connection:
        watched: WatchedRank | None = None
        while (message := _next(connection, watched)) is not None:
            if isinstance(message, Hurry):
                continue
            if isinstance(message, WatchRank):
                watched = WatchedRank(message.marks, message.process)
                watched.begin()
                continue
            status = _in_a_child(connection, message)
            if status != 0:
                _answer_for_the_dead(connection, message, status)
            elif isinstance(message, StoreFinal):
                watched = None
        if watched is not None:
            watched.write_death()


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


def _in_a_child(connection: socket.socket, message: Any) -> int:
    child = os.fork()
    if child != 0:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        if isinstance(message, StoreEarly):
            _store_early(connection, message)
        else:
            _store_final(connection, message)
        status = 0
    finally:
        # Whatever happens, the child must not go on as the parent does.
        os._exit(status)


def _store_early(connection: socket.socket, message: StoreEarly) -> None:
    # Meanwhile the program steps, perhaps on all cores.
    os.nice(_NICENESS)
    os.environ["POLARS_MAX_THREADS"] = "1"
    from gpuprof.profiler.run.store_recorded import store_early

    output, problem = message.recorded.subject.output, ""
    try:
        store_early(message.recorded)
    except BaseException as error:
        problem = describe(error)
    _answer(connection, StoredEarly(output, problem))


def _store_final(connection: socket.socket, message: StoreFinal) -> None:
    from gpuprof.profiler.run.telling import store_and_tell

    hurry = threading.Event()
    threading.Thread(target=_listen, args=(connection, hurry), daemon=True).start()
    stored = store_and_tell(message.recorded, quiet=message.quiet, hurry=hurry)
    _answer(connection, Done(lost=not stored))


def _listen(connection: socket.socket, hurry: threading.Event) -> None:
    """Set `hurry` once asked to, or once nobody waits for the answer."""
    receive(connection)
    hurry.set()


def _answer_for_the_dead(connection: socket.socket, message: Any, status: int) -> None:
    if isinstance(message, StoreEarly):
        problem = f"the process that stores the capture ended with status {status}"
        _answer(connection, StoredEarly(message.recorded.subject.output, problem))
    else:
        # The program's side stores it itself.
        sys.exit(1)


def _answer(connection: socket.socket, message: object) -> None:
    try:
        send(connection, message)
    except OSError:
        # The program has ended meanwhile.
        os._exit(0)
