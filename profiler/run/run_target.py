"""Runs a program under a recording, and ends as the program would have ended."""

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn

import gpuprof
from gpuprof.collectors.live.script_errors import exception_names
from gpuprof.collectors.manifest import Ending, Schedule
from gpuprof.collectors.masked_arguments import masked_arguments
from gpuprof.collectors.plain_text import storable
from gpuprof.profiler.run.ending_signals import EndingSignals, die_by, wait_for_the_end
from gpuprof.profiler.run.live_state import LiveState
from gpuprof.profiler.run.main_thread import call_on_main_thread, main_thread_answers
from gpuprof.profiler.run.on_demand.plan import OnDemandPlan
from gpuprof.profiler.run.on_demand.waiting import WaitingWatch
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.rank_marks import RankMarks
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.recorded import Subject
from gpuprof.profiler.run.script import (
    PreparedProgram,
    RunTarget,
    execute,
    prepare,
    refuse_without_torch,
)
from gpuprof.profiler.run.session_options import SessionOptions
from gpuprof.profiler.run.storing import Storing
from gpuprof.profiler.run.storing_process import StoringProcess
from gpuprof.profiler.run.surroundings import flush
from gpuprof.profiler.run.watch import Watch
from gpuprof.reports.console.progress import can_move

_ENDINGS: Final[dict[signal.Signals, Ending]] = {
    signal.SIGTERM: "sigterm",
    signal.SIGHUP: "sighup",
    signal.SIGINT: "interrupted",
}
# Numbers that a C long can hold.
_LONG: Final = range(-(1 << 63), 1 << 63)
_OUR_FOLDER = str(Path(gpuprof.__file__).parent) + os.sep
# Nobody who leaves by os._exit waits longer for a capture.
_GRACE_S = 25.0


def run_target(
    target: RunTarget,
    options: SessionOptions,
    output: CaptureOutput,
    *,
    quiet: bool,
    ceilings: bool = True,
    keep_arguments: bool = True,
    on_demand: OnDemandPlan | None = None,
) -> int:
    """Run `target`, store its capture at `output`, and return the exit code it ends with.

    Where a signal ends the program it ends this process in the same way. With `on_demand` there is
    a capture beside `output` for each request.
    """
    try:
        program = prepare(target)
    except SyntaxError as error:
        traceback.print_exception(type(error), error, None)
        return 1
    refuse_without_torch(program)
    kept = target.arguments if keep_arguments else ()
    subject = Subject(
        output=output,
        title=storable(target.title),
        source="gpuprof run",
        command=masked_arguments(map(storable, (target.title, *kept))),
        ceilings=ceilings,
    )
    ranks = Ranks.from_environment()
    live = None if quiet or on_demand is not None else _live_state(ranks)
    storing_process = StoringProcess(live)
    watch: Watch | WaitingWatch
    if on_demand is None:
        # A program that ends with its profiled steps is stored once, at its end.
        store_early = None if options.stop_after else storing_process.store_early
        watch = Watch(subject, options, store_early=store_early, live=live)
    else:
        watch = WaitingWatch(subject, options, on_demand, storing_process, quiet=quiet)
    storing_process.show_line(_planned_steps(options.schedule))
    if not watch.ranks.alone:
        storing_process.watch_rank(RankMarks(output.requested, watch.ranks))
    storing = Storing(watch, storing_process, quiet=quiet)
    process = os.getpid()

    def end(number: signal.Signals) -> bool:
        storing.hurry()
        return storing.store(_ENDINGS[number], 128 + number)

    with EndingSignals(end).watching(), _saving_before_exit(storing, process):
        ending, status = _execute(watch, program, target)
        if os.getpid() != process:
            _end_forked_child(ending, status)
        flush(sys.stdout)
        if not storing.store(ending, status):
            wait_for_the_end()
    if ending == "interrupted" or storing.interrupted:
        # As python: whoever started us sees which signal it was, and a shell ends its loop.
        _run_exit_functions()
        die_by(signal.SIGINT)
    if _leaves_a_profile():
        # What ends it with its thread calls libkineto, which may be gone by then (SIGSEGV, 2.13).
        _run_exit_functions()
        os._exit(storing.exit_code(status))
    return storing.exit_code(status)


def _leaves_a_profile() -> bool:
    """Whether torch still records for us; a program may end without having imported torch."""
    traces = sys.modules.get("gpuprof.collectors.live.torch_trace")
    return traces is not None and bool(traces.overtaken)


def _live_state(ranks: Ranks) -> LiveState | None:
    """What the line on the terminal shows; None where there is no line."""
    if ranks.rank != 0 or not can_move():
        return None
    with suppress(OSError):
        return LiveState()
    return None


def _planned_steps(schedule: Schedule) -> dict[str, int]:
    # Before the first profiled step comes one in which the profiler warms up.
    return {
        "warmup": schedule.warmup,
        "timed": schedule.timed,
        "profiled": schedule.profiled + 1,
    }


def _execute(
    watch: Watch | WaitingWatch, program: PreparedProgram, target: RunTarget
) -> tuple[Ending, int]:
    """Run the program to its end, and say how it ended and with what exit status."""
    try:
        with watch.watching():
            execute(program, target.arguments)
    except SystemExit as error:
        return "finished", exit_status(error)
    except KeyboardInterrupt as error:
        _print_traceback(error, program)
        return "interrupted", 128 + signal.SIGINT
    except BaseException as error:
        watch.exceptions = exception_names(error)
        _print_traceback(error, program)
        return "exception", 1
    return "finished", 0


def _end_forked_child(ending: Ending, status: int) -> NoReturn:
    """Leave a child that the program forked and that ran to its end; the parent records.

    It must not run C++ destructors: libkineto's waits for a thread that only the parent has, so
    that a plain exit would hang in any program that forks after using torch.profiler.
    """
    _run_exit_functions()
    if ending == "interrupted":
        die_by(signal.SIGINT)
    os._exit(status)


def _run_exit_functions() -> None:
    """What python does between the end of a program and that of the process."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    flush(sys.stdout)
    flush(sys.stderr)


def exit_status(error: SystemExit) -> int:
    """The status that python would exit with, as whoever started us sees it."""
    code: object = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        # As C has it: an enumeration or a bool is its number, and eight bits of it are seen.
        number = int.__int__(code)
        return (number if number in _LONG else -1) & 0xFF
    flush(sys.stdout)
    with suppress(Exception):
        # Python writes to the descriptor where the program has taken the stream away.
        if sys.stderr is None:
            os.write(2, f"{code}\n".encode())
        else:
            sys.stderr.write(f"{code}\n")
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
def _saving_before_exit(storing: Storing, process: int) -> Iterator[None]:
    """Within this context `os._exit`, which skips every clean-up, stores the capture first."""
    original: Any = os._exit

    def exit_process(status: int) -> None:
        if os.getpid() == process and isinstance(status, int):
            status = int.__int__(status) & 0xFF
            _store_on_any_thread(storing, status, original)
            status = storing.exit_code(status)
        original(status)

    os._exit = exit_process  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = original


def _store_on_any_thread(storing: Storing, status: int, exit_process: Any) -> None:
    """Store the capture on the main thread, where its profiler is, or if that is in C on this."""

    def store_and_exit() -> None:
        if storing.store("exit", status):
            exit_process(storing.exit_code(status))
        if not storing.on_this_thread:
            wait_for_the_end()

    if threading.current_thread() is not threading.main_thread() and not storing.claimed.is_set():
        call_on_main_thread(store_and_exit)
        main_thread_answers(storing.claimed)
    if not storing.store("exit", status) and not storing.on_this_thread:
        storing.done.wait(_GRACE_S)
