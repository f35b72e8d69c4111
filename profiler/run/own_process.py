"""The program in a process of its own: its signals, its end, and where its capture lies."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final, TypeAlias

import msgspec

from gpuprof.collectors import storage
from gpuprof.collectors.errors import CaptureError
from gpuprof.profiler.captures import store
from gpuprof.profiler.child_processes import ending_with_us
from gpuprof.profiler.run.ending_signals import die_by
from gpuprof.roofline.analyze import analyze

_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | signal.Handlers
# As many captures of one name as are looked through.
_PLACES: Final = 100


def ended_as(status: int) -> int:
    """The exit code of the first run; where a person's signal ended that, it ends us too."""
    if -status in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        die_by(signal.Signals(-status))
    return status if status >= 0 else 128 - status


def interpreter_flags() -> list[str]:
    """The options this interpreter was started with, as in `python -O -m gpuprof run ...`."""
    own_arguments = len(sys.argv) - 1
    head = sys.orig_argv[1 : len(sys.orig_argv) - own_arguments]
    # What is left ends with "-m gpuprof" or the path of the gpuprof script.
    return head[: -2 if head[-2:-1] == ["-m"] else -1]


def capture_of(process: int, output: Path) -> Path | None:
    """Where the process of this id stored its capture: at `output` or beside it."""
    for place in itertools.islice(storage.names_beside(output), _PLACES):
        with suppress(CaptureError):
            manifest = storage.load_manifest(place)
            if storage.load_process(place, manifest.ranks[0]).process == process:
                return place
    return None


def run_program(
    command: Sequence[str],
    *,
    said: IO[bytes] | None = None,
    kept_open: Sequence[int] = (),
) -> tuple[int, int]:
    """The exit code of `command`, -N where a signal N ended it, and its process id.

    Signals that end us are its to answer; where we are killed, it is. `said` takes what it prints,
    instead of our streams, and `kept_open` are descriptors that it inherits.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    with ending_with_us(os.environ) as environment, _handling(signal.SIGTERM, forward):
        process = subprocess.Popen(
            command, stdout=said, stderr=said, pass_fds=tuple(kept_open), env=environment
        )
        for number in early:
            process.send_signal(number)
        # A terminal sends Ctrl-C to the child itself.
        with _handling(signal.SIGINT, signal.SIG_IGN):
            status = process.wait()
    return status, process.pid


@contextmanager
def _handling(number: signal.Signals, handler: _Handler) -> Iterator[None]:
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)


def add_warning(output: Path, warning: str, *, further: Mapping[str, bytes] | None = None) -> None:
    """Add `warning` to the capture in `output`, and files `further` by name."""
    capture = storage.load(output)
    first, *others = capture.processes
    first = msgspec.structs.replace(first, warnings=(*first.warnings, warning))
    capture = capture.with_processes((first, *others))
    store(capture, analyze(capture), output, further=further)
