"""Lets a program run untouched, and records a few of its steps each time that it is asked to.

A request comes by a signal or from a step. Each one is a session of its own, which ends with its
profiled steps; its capture is stored by the storing process while the program goes on. One at a
time: what is asked for meanwhile begins after it.
"""

import sys
import threading
from _thread import start_new_thread
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Final

from gpuprof.collectors.errors import describe
from gpuprof.collectors.live.module_import import once_imported
from gpuprof.collectors.live.script_errors import hiding_our_errors, is_ours
from gpuprof.collectors.live.unix_clock import UnixClock
from gpuprof.collectors.manifest import Ending
from gpuprof.profiler.run import current_session
from gpuprof.profiler.run.ending_signals import answered_afterwards
from gpuprof.profiler.run.main_thread import call_on_main_thread, is_called_by_torch
from gpuprof.profiler.run.on_demand.numbered_captures import NumberedCaptures
from gpuprof.profiler.run.on_demand.plan import OnDemandPlan
from gpuprof.profiler.run.on_demand.request_signals import RequestSignal, signal_name
from gpuprof.profiler.run.on_demand.slow_steps import SlowStepDetector
from gpuprof.profiler.run.on_demand.waiting_processes import (
    WaitingMark,
    announced,
    own_folder,
    own_process,
)
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.recorded import Recorded, Subject
from gpuprof.profiler.run.session_options import SessionOptions
from gpuprof.profiler.run.storing_process import StoringProcess
from gpuprof.reports.console.streams import NoteStream, own_stderr
from gpuprof.reports.formatting import duration

if TYPE_CHECKING:
    from gpuprof.profiler.run.on_demand.program_steps import ProgramSteps
    from gpuprof.profiler.run.recording import Recording

# Of the session, when the profiled steps are done.
_OVER: Final = ("later", "done")
_ONCE_MORE_SECONDS: Final = 0.2


class WaitingWatch:
    """What `gpuprof run --wait` does of a program."""

    def __init__(
        self,
        subject: Subject,
        options: SessionOptions,
        plan: OnDemandPlan,
        process: StoringProcess,
        *,
        quiet: bool,
    ) -> None:
        """`subject` names where the captures go beside; `process` stores them.

        Raises `CommandError` where nobody could ask for any.
        """
        self.ranks = Ranks.from_environment()
        self.exceptions: tuple[str, ...] = ()
        # The end of the program has its own ceilings to measure; a running one is in the way.
        self._subject = replace(subject, ceilings=False)
        self._options = replace(options, first_look=False)
        self._plan = plan
        self._process = process
        self._stderr = own_stderr()
        self._quiet = quiet
        self._captures = NumberedCaptures(subject.output.requested, plan.most_captures)
        self._signal = RequestSignal(plan.signal, self._asked, self._signal_is_taken)
        self._signal.refuse_taken()
        self._waiting = own_process(
            subject.title, subject.output.requested, plan.signal, UnixClock().now_ns()
        )
        own_folder()
        self._mark: WaitingMark | None = None
        self._next_steps = sorted(plan.at_steps)
        self._slow: SlowStepDetector | None = None
        if plan.slower_than_p95 is not None:
            self._slow = SlowStepDetector(plan.slower_than_p95)
        self._has_torch = False
        self._ended = False
        self._steps: ProgramSteps | None = None
        # Held from the beginning of a capture until it is stored: a signal may come in between any
        # two instructions.
        self._under_way = threading.Lock()
        self._pending = ""
        self._recording: Recording | None = None
        # One that is being stored, or was stored and has its traces still.
        self._measured: Recording | None = None
        self._stored = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The program runs within this context."""
        waiting = self._waiting
        with self._signal.watching(), announced(waiting) as self._mark:
            self._tell(
                f"process {waiting.process} waits; gpuprof snap {waiting.process} profiles its next"
                " steps"
            )
            with once_imported("torch", self._imported):
                yield

    def _imported(self) -> None:
        with self._guarded():
            # So that a request imports nothing in the middle of the program.
            from gpuprof.profiler.run import recording as _  # noqa: F401

            if self._plan.follows_steps:
                self._follow_steps()
            self._has_torch = True
            if self._next_steps and self._next_steps[0] == 1:
                self._next_steps.pop(0)
                self._request("--at-step 1")
            elif self._pending:
                self._request(self._pending)

    def _follow_steps(self) -> None:
        from gpuprof.profiler.run.on_demand.program_steps import ProgramSteps

        self._steps = ProgramSteps(self._options, self._stepped)
        self._steps.install()
        current_session.current = self._steps

    # -- requests ------------------------------------------------------------------------------

    def _asked(self, frame: FrameType | None) -> None:
        """The signal has come, to the main thread in `frame`."""
        with self._guarded():
            # As in `FirstLook`: in the middle of an operator or a compilation nothing may begin.
            if self._has_torch and is_called_by_torch(frame):
                again = threading.Timer(_ONCE_MORE_SECONDS, call_on_main_thread, [self._ask_again])
                again.daemon = True
                again.start()
            else:
                self._request("gpuprof snap")

    def _ask_again(self) -> None:
        self._asked(sys._getframe())

    def _signal_is_taken(self) -> None:
        """The program handles the signal itself from now on."""
        if self._mark is not None:
            self._mark.remove()
        name = signal_name(self._plan.signal)
        self._tell(
            f"the program handles {name} itself, so gpuprof snap cannot reach it any more; "
            "choose another signal with --signal"
        )

    def _stepped(self, steps: int, length_ns: int | None) -> None:
        """A step has ended, the last of `steps`; see `ProgramSteps`."""
        slow = self._slow
        limit_ns = None if slow is None else slow.p95_ns
        if slow is not None and length_ns is not None and slow.is_slow(length_ns):
            why = f"step {steps} took {duration(length_ns)}, the P95 was {duration(limit_ns)}"
            if self._under_way.locked():
                # Those that come after the capture under way would be other steps.
                return
        elif self._next_steps and self._next_steps[0] <= steps + 1:
            why = f"--at-step {self._next_steps[0]}"
            self._next_steps = [number for number in self._next_steps if number > steps + 1]
        else:
            return
        with self._guarded():
            self._request(why)

    def _request(self, why: str) -> None:
        """Begin a capture because of `why`, now or once the one under way is stored."""
        if self._ended:
            return
        recording = self._recording
        if recording is not None and recording.session.gave_up:
            self._end_capture()
        if not self._has_torch or not self._under_way.acquire(blocking=False):
            self._pending = why
            return
        self._pending = ""
        try:
            if current_session.current in (None, self._steps):
                self._begin_capture(why)
                return
            self._tell("gpuprof.profile() records already: nothing was begun; ask again later")
        except BaseException:
            self._under_way.release()
            raise
        self._under_way.release()

    def _begin_capture(self, why: str) -> None:
        from gpuprof.profiler.run.recording import Recording

        subject = replace(
            self._subject,
            output=self._captures.next(),
            title=f"{self._subject.title} ({why})",
        )
        recording = Recording(
            subject,
            self._options,
            ranks=self.ranks,
            on_step=self._recorded_step,
            found_steps=self._steps,
        )
        self._stored.clear()
        self._recording = recording
        self._tell(f"{subject.output.shown} begins: {why}")
        recording.start()

    def _recorded_step(self, phase: str) -> None:
        if phase in _OVER:
            self._end_capture()

    # -- storing -------------------------------------------------------------------------------

    def _end_capture(self) -> None:
        # Between the two the capture would be neither under way nor stored.
        with answered_afterwards():
            recording, self._recording = self._recording, None
            if recording is not None:
                self._hand_over(recording)

    def _hand_over(self, recording: "Recording") -> None:
        """Have the capture stored."""
        try:
            recorded = recording.finish("finished", 0)
            self._measured = recording
            start_new_thread(self._store, (recorded,))
        except BaseException as error:
            self._measured = None
            if is_ours(error):
                recording.close()
                self._under_way.release()
            else:
                # Ctrl-C: it is stored at the end.
                self._recording = recording
            raise
        finally:
            current_session.current = self._steps
            if self._slow is not None:
                self._slow.begin_again()

    def _store(self, recorded: Recorded) -> None:
        """On a thread of its own, which waits for the storing process most of the time."""
        output = recorded.subject.output
        try:
            stored = self._process.store_aside(recorded)
            if stored is None:
                problem = "the process that stores captures has ended"
            else:
                output, problem = stored.output, stored.problem
            self._tell_stored(output, problem)
            if output.stored:
                self._captures.keep(output)
                self._make_room()
        except Exception as error:
            self._tell(f"{output.shown} could not be stored: {describe(error)}", always=True)
        finally:
            self._stored.set()
            call_on_main_thread(self._wait_again)

    def _tell_stored(self, output: CaptureOutput, problem: str) -> None:
        shown = output.shown
        if not output.stored:
            self._tell(f"{shown} could not be stored: {problem}", always=True)
        elif problem:
            self._tell(f"{shown} is stored, and could not be analysed: {problem}", always=True)
        else:
            self._tell(f"{shown} is stored; gpuprof summary {shown} shows it")

    def _make_room(self, places: int = 0) -> None:
        for removed in self._captures.make_room(places):
            self._tell(f"{removed} was removed: --captures {self._plan.most_captures}")

    def _wait_again(self) -> None:
        """On the main thread, once a capture is stored."""
        if self._ended:
            return
        self._close_measured()
        self._under_way.release()
        if self._pending:
            with self._guarded():
                self._request(self._pending)

    def _close_measured(self) -> None:
        measured, self._measured = self._measured, None
        if measured is not None:
            measured.close()

    # -- the end -------------------------------------------------------------------------------

    def finish(self, ending: Ending, exit_code: int) -> Recorded | None:
        """See `ProgramWatch`: the capture under way, as far as it got."""
        self._ended = True
        if self._steps is not None:
            self._steps.remove()
            current_session.current = None
        if self._measured is not None:
            self._stored.wait()
            self._close_measured()
        if self._pending:
            self._tell(f"the program ended before a capture could begin: {self._pending}")
        if self._recording is None:
            return None
        self._make_room(1)
        return self._recording.finish(ending, exit_code, self.exceptions)

    def close(self) -> None:
        """See `ProgramWatch`."""
        self._close_measured()
        if self._recording is not None:
            self._recording.close()
        elif not self._captures.stored and not self._pending:
            self._tell("nothing asked for a capture; gpuprof snap does while the program runs")

    def _guarded(self) -> AbstractContextManager[None]:
        """The program must not fail because nothing could be recorded."""
        return hiding_our_errors(
            lambda why: self._tell(f"nothing was recorded: {why}", always=True)
        )

    def _tell(self, sentence: str, *, always: bool = False) -> None:
        if always or not self._quiet:
            NoteStream(self._stderr).write(f"gpuprof: {sentence}\n")
