"""Runs a program under a recording, and ends as the program would have ended."""

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

import gpuprof
from gpuprof.collectors.errors import GpuprofError
from gpuprof.collectors.manifest import Calibration, Device, Ending
from gpuprof.profiler.machine import calibration_cache
from gpuprof.profiler.run.recording import Recording, Subject
from gpuprof.profiler.run.script import PreparedProgram, RunTarget, execute, prepare
from gpuprof.profiler.run.session import SessionOptions
from gpuprof.reports.console.streams import write_note
from gpuprof.reports.console.terminal import stderr
from gpuprof.reports.terminal import render_summary

_SIGTERM_STATUS = 128 + signal.SIGTERM
_INTERRUPTED_STATUS = 128 + signal.SIGINT
_OUR_FOLDER = str(Path(gpuprof.__file__).parent) + os.sep


class _Terminated(SystemExit):
    """SIGTERM arrived."""


def run_target(target: RunTarget, options: SessionOptions, output: Path, *, quiet: bool) -> int:
    """Run `target`, store its capture at `output`, and return the exit code it ends with."""
    try:
        program = prepare(target)
    except SyntaxError as error:
        traceback.print_exception(type(error), error, None)
        return 1
    subject = Subject(
        output=output,
        title=target.title,
        source="gpuprof run",
        command=(target.title, *target.arguments),
    )
    recording = Recording(subject, options)
    process = os.getpid()
    with _sigterm_raises(process), _saving_before_exit(recording, process, quiet=quiet):
        ending, status = _execute(recording, program, target)
    if os.getpid() != process:
        _end_forked_child(status)
    _finish(recording, ending, status, quiet=quiet)
    if ending == "sigterm":
        # Threads that still run would hold the interpreter back, and it was asked to go.
        sys.stdout.flush()
        os._exit(status)
    return status


def _execute(
    recording: Recording, program: PreparedProgram, target: RunTarget
) -> tuple[Ending, int]:
    try:
        recording.start()
        execute(program, target.arguments)
    except _Terminated:
        return "sigterm", _SIGTERM_STATUS
    except SystemExit as error:
        return "finished", _exit_status(error)
    except KeyboardInterrupt as error:
        _print_traceback(error, program)
        return "interrupted", _INTERRUPTED_STATUS
    except BaseException as error:
        _print_traceback(error, program)
        return "exception", 1
    return "finished", 0


def _end_forked_child(status: int) -> NoReturn:
    """Leave a child that the program forked and that ran to its end; the parent records.

    It must not run C++ destructors: libkineto's waits for a thread that only the parent has, so
    that a plain exit would hang in any program that forks after using torch.profiler.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _finish(recording: Recording, ending: Ending, status: int, *, quiet: bool) -> None:
    """Store the capture; a failure to do so is told but does not change the exit code's cause."""
    sys.stdout.flush()
    # Whoever asked the program to go does not want to wait.
    calibrate = None if ending in ("sigterm", "interrupted") else partial(_calibrate, quiet)
    try:
        analysis = recording.finish(ending, status, calibrate=calibrate)
    except (GpuprofError, OSError) as error:
        write_note(f"gpuprof: the capture could not be stored: {error}")
        return
    if not quiet and recording.ranks.rank == 0:
        render_summary(analysis, stderr(), recording.subject.output)


def _calibrate(quiet: bool, device: Device) -> Calibration:
    if not quiet:
        write_note("gpuprof: measuring once what this CPU can do (gpuprof calibrate)")
    return calibration_cache.calibrate_cached(device)


def _exit_status(error: SystemExit) -> int:
    """The status python would exit with."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    # As python does it; the program may have closed the stream, or have been started without it.
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{error.code}\n")
    return 1


def _print_traceback(error: BaseException, program: PreparedProgram) -> None:
    """Print the script's traceback without our frames: those that lead to it and those in it."""
    tail: TracebackType | None = error.__traceback__
    while tail is not None and tail.tb_frame.f_code is not program.code:
        tail = tail.tb_next
    tail = _without_our_frames(tail)
    sys.excepthook(type(error), error.with_traceback(tail), tail)


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    """`trace` without what step sources and NVTX wrappers add between two frames of the script."""
    kept: list[TracebackType] = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OUR_FOLDER):
            kept.append(trace)
        trace = trace.tb_next
    result = None
    for part in reversed(kept):
        result = TracebackType(result, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return result


@contextmanager
def _sigterm_raises(process: int) -> Iterator[None]:
    """Within this context SIGTERM unwinds the program, as Ctrl-C does."""

    def terminate(number: int, _: FrameType | None) -> None:
        # A second one, or one in a forked child, acts as if nobody handled it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getpid() != process:
            os.kill(os.getpid(), number)
            return
        raise _Terminated(_SIGTERM_STATUS)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is terminate:
            signal.signal(signal.SIGTERM, previous)


@contextmanager
def _saving_before_exit(recording: Recording, process: int, *, quiet: bool) -> Iterator[None]:
    """Within this context `os._exit`, which skips every clean-up, stores the capture first."""
    original: Any = os._exit

    def exit_process(status: int) -> None:
        os._exit = original
        if os.getpid() == process:
            _finish(recording, "exit", status, quiet=quiet)
        original(status)

    os._exit = exit_process  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = original
