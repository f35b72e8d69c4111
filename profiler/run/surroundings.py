"""What a program may take from our code, which shares its process, and how that is given back.

Output streams, frames of the stack, address space, and signals' handlers that raise.
"""

import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from gpuprof.collectors.errors import CollectorError

# Frames that our code needs at most, above those of the program.
_FRAMES: Final = 1000
# With less, what allocates from several threads aborts the process instead of failing.
_ADDRESS_SPACE_BYTES: Final = 1 << 30
_NICENESS: Final = 19


def give_way() -> None:
    """Let the program have the cores, while this process stores for it."""
    os.nice(_NICENESS)
    os.environ["POLARS_MAX_THREADS"] = "1"


def flush(stream: Any) -> None:
    """Flush a stream of the program, which may be None, closed, or no file at all."""
    with suppress(Exception):
        stream.flush()


@contextmanager
def ample_recursion() -> Iterator[None]:
    """Within this context our code has the frames that it needs."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _FRAMES + _depth()))
    try:
        yield
    finally:
        with suppress(RecursionError):
            sys.setrecursionlimit(limit)


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


@contextmanager
def enough_address_space() -> Iterator[None]:
    """Within this context the process has all address space that it may have.

    Raises `CollectorError` where that is too little to store a capture.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        free = hard - _address_space_bytes()
        if hard != resource.RLIM_INFINITY and free < _ADDRESS_SPACE_BYTES:
            raise CollectorError(
                f"{max(free, 0) >> 20} MiB of address space are left (RLIMIT_AS), and "
                f"{_ADDRESS_SPACE_BYTES >> 20} MiB are needed"
            )
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


@contextmanager
def handlers_at_rest() -> Iterator[None]:
    """Within this context no handler of the program runs: it has ended, and nobody would hear it.

    Signals that end a process act as if nobody handled them; Ctrl-C is left as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {
        number: signal.getsignal(number)
        for number in signal.valid_signals() - {signal.SIGINT}
        if callable(signal.getsignal(number))
    }
    for number in handlers:
        ends = number in (signal.SIGTERM, signal.SIGHUP)
        signal.signal(number, signal.SIG_DFL if ends else _pass_over)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _pass_over(*_: object) -> None:
    pass
