"""Programs that we start, and that end with us when something ends us early."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from gpuprof.profiler import orphan_guard

_ENDING_US: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# By its value a guard knows what it is to end.
_MARK: Final = "GPUPROF_STARTED_BY"


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
    those of `ending_signals_raise` and Ctrl-C, or `subprocess.TimeoutExpired` after `timeout_s`;
    and so does what kills us. Raises `OSError` where it cannot be started.
    """
    process = None
    with ending_with_us(os.environ if env is None else env) as environment:
        try:
            # An exception while a process starts would leave it to nobody.
            with _signals_waiting():
                process = subprocess.Popen(
                    command,
                    shell=isinstance(command, str),
                    cwd=cwd,
                    env=environment,
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
def ending_with_us(environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """`environment` for a process that is killed, with all that it started, if we are.

    Only within this context. Where no guard can be started it is as without.
    """
    mark = f"{os.getpid()}-{os.urandom(8).hex()}"
    guard = None
    try:
        with suppress(OSError), _signals_waiting():
            guard = subprocess.Popen(
                [sys.executable, "-I", "-S", orphan_guard.__file__, f"{_MARK}={mark}"],
                # It must outlive us, also where we are one of those that another guard ends.
                env={name: value for name, value in os.environ.items() if name != _MARK},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        yield environment if guard is None else {**environment, _MARK: mark}
    finally:
        if guard is not None:
            assert guard.stdin is not None
            with suppress(OSError):
                guard.stdin.write(b".")
            guard.stdin.close()
            guard.wait()


@contextmanager
def ending_signals_raise() -> Iterator[None]:
    """SIGTERM, with which CI services end jobs, and SIGHUP raise an exception in here, as Ctrl-C.

    So processes and files do not stay behind. Threads other than the main one get no signals.
    """
    with ExitStack() as restoring:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                _raise_on(number, restoring)
        yield


def _raise_on(number: signal.Signals, restoring: ExitStack) -> None:
    former: Any = signal.getsignal(number)
    # After `nohup` a hangup is to be ignored.
    if former is _leave or (number == signal.SIGHUP and former != signal.SIG_DFL):
        return
    signal.signal(number, _leave)
    restoring.callback(signal.signal, number, former)


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
