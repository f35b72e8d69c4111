"""Programs that we start, and that end with us when something ends us early."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

_ENDING_US = (signal.SIGINT, signal.SIGTERM)


def run_child(
    command: str | Sequence[str],
    *,
    stdout: IO[bytes],
    stderr: IO[bytes] | int,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> int:
    """Run `command` to its end, a text by the shell. Returns its exit status, -N for a signal N.

    What ends the wait early ends the child and all that it started first: an exception such as
    those of `sigterm_raises` and Ctrl-C, or `subprocess.TimeoutExpired` after `timeout_s`. Raises
    `OSError` where it cannot be started.
    """
    process = None
    try:
        # An exception while a process starts would leave it to nobody.
        with _signals_waiting():
            process = subprocess.Popen(
                command,
                shell=isinstance(command, str),
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        return process.wait(timeout_s)
    finally:
        if process is not None and process.poll() is None:
            with _signals_waiting():
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM, with which CI services end jobs, raises an exception in here, as Ctrl-C does.

    So processes and files do not stay behind. Threads other than the main one get no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.getsignal(signal.SIGTERM)
    if former is _leave:
        yield
        return
    signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _leave(number: int, _: FrameType | None) -> None:
    # `timeout` sends it twice, to us and to our group: the second must not end the clean-up.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


@contextmanager
def _signals_waiting() -> Iterator[None]:
    """Signals that arrive in this context are answered at its end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    former = [signal.signal(one, lambda number, _: arrived.append(number)) for one in _ENDING_US]
    try:
        yield
    finally:
        for one, handler in zip(_ENDING_US, former, strict=True):
            signal.signal(one, handler)
        for number in arrived:
            signal.raise_signal(number)
