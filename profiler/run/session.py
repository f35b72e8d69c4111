"""One profiling session in a live process: finds steps, times them, then profiles a few.

    warm-up steps -> timed steps, no profiler -> profiled steps -> a mark a step, no more

While steps are being looked for, the *first look* profiles from the start to the second complete
step. It is what the report has to show where a script ends before its profiled steps, or never
steps at all; a script that steps long enough never needs it and it is dropped.
"""

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from gpuprof.collectors import freed_memory
from gpuprof.collectors.errors import reason
from gpuprof.collectors.files.temporary import new_temporary_folder
from gpuprof.collectors.live import (
    cuda,
    garbage_collection,
    nvtx_ranges,
    torch_trace,
)
from gpuprof.collectors.live.cupti_holders import suspected_holder
from gpuprof.collectors.live.nvtx_marks import StepRanges
from gpuprof.collectors.live.pm_sampling.recorder import PmSampler
from gpuprof.collectors.live.profile_recorder import ProfileRecording
from gpuprof.collectors.live.profiled_roster import profile_recorders
from gpuprof.collectors.live.script_errors import is_ours
from gpuprof.collectors.live.torch_trace import TorchTrace
from gpuprof.collectors.live.unix_clock import UnixClock
from gpuprof.collectors.steps.clock import StepClock
from gpuprof.collectors.steps.finder import StepFinder, StepSearch
from gpuprof.collectors.steps.sources import ExplicitSteps, Mark
from gpuprof.profiler.run import current_session
from gpuprof.profiler.run.ending_signals import answered_afterwards
from gpuprof.profiler.run.first_look import (
    FIRST_LOOK_SECONDS,
    FIRST_LOOK_STEPS,
    FirstLook,
    impossible_because,
)
from gpuprof.profiler.run.graph_traces import GraphTraces, compiles_into_graphs
from gpuprof.profiler.run.later_steps import LaterClock, counting, read_clock, started_clock
from gpuprof.profiler.run.observations import Observations
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.session_options import SessionOptions, StopAfterSteps
from gpuprof.profiler.run.step_agreement import StepAgreement
from gpuprof.profiler.run.step_sources import FoundSteps, step_sources
from gpuprof.profiler.run.surroundings import ample_recursion
from gpuprof.profiler.run.system_clock import clock_warnings
from gpuprof.profiler.run.timed_steps import TimedSteps

# A script may start profilers of its own again and again, and each time ours gives way.
_MOST_ATTEMPTS = 3
# How often somebody is told of steps after the profiled ones.
_TELLING_NS = 100_000_000
# The end waits so long for a boundary of another thread, of the 30 s that a scheduler leaves.
_PATIENCE_S = 5.0


class Session:
    """Watches this process from `start` to `finish`. One at a time in a process."""

    def __init__(
        self,
        options: SessionOptions,
        *,
        on_profiled: Callable[["Session"], None] = lambda session: None,
        on_step: Callable[[str, int], None] = lambda phase, steps: None,
        tells_later: bool = True,
        ranks: Ranks | None = None,
        found_steps: FoundSteps | None = None,
    ) -> None:
        """`on_step` is told the phase that goes on and the boundaries so far, after each.

        After the profiled steps it is told ten times a second; without `tells_later` of the first
        one, and of few more.

        `ranks` that are several time the same steps. With `found_steps` nobody has to look for
        steps any more.
        """
        self.options = options
        self._on_profiled = on_profiled
        self._on_step = on_step
        self._tells_later = tells_later
        if found_steps is None:
            self.explicit = ExplicitSteps()
            sources = step_sources(options, self.explicit)
            self._finder: StepSearch = StepFinder(sources, self)
        else:
            self.explicit = found_steps.explicit
            self._finder = found_steps.told_to(self)
        # Held by the thread that is in a boundary: of a trace that it writes another one would free
        # what torch writes (SIGSEGV).
        self._at_boundary = threading.RLock()
        self._phase, self._boundaries = "warmup", 0
        self._clock: StepClock | None = None
        self._ranks = ranks or Ranks(0, 0, 1)
        self._timed = self._new_timed_steps()
        self._later: LaterClock | None = None
        # For other tools, which see the steps as ranges.
        self._step_ranges = StepRanges()
        self._trace: TorchTrace | None = None
        # Attempts to profile steps, and why the last one was dropped.
        self._attempts = 0
        self._dropped_because: str | None = None
        self._first_look: FirstLook | None = None
        self._no_first_look_because: str | None = None
        self._beside = ProfileRecording(
            partial(profile_recorders, whole_stacks=options.stacks),
            of_steps=lambda: [PmSampler()] if options.pm_sampling else [],
        )
        self._graphs = GraphTraces(self._beside, self._capture_begins)
        self._exits = ExitStack()
        self._process = os.getpid()
        self._unix = UnixClock()
        self.seen = Observations(self._unix.now_ns(), self._graphs.traces, self._graphs.graphs)
        self.seen.looks_for_steps = options.steps != "script"

    def start(self) -> None:
        """Begin to watch; the calling thread is taken for the one that steps."""
        current_session.current = self
        nvtx_ranges.install()
        garbage_collection.install()
        self._exits.callback(garbage_collection.remove)
        # Not TemporaryDirectory: it would also clean up when a forked child exits.
        self._folder = new_temporary_folder("run")
        self._exits.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self.seen.folder = self._folder
        self._exits.enter_context(torch_trace.yielding_to(self._yield_profiler))
        if self.options.schedule.profiled:
            self._exits.enter_context(self._graphs.watching(self._folder))
        self._finder.install()
        self._start_first_look()
        self.seen.started_ns = self._unix.now_ns()

    def step(self, tokens: int | None) -> None:
        """What `gpuprof.step()` says."""
        self.explicit.step(tokens)

    @property
    def active(self) -> bool:
        """False in a forked child, where nothing may be watched or written."""
        return os.getpid() == self._process

    @property
    def gave_up(self) -> bool:
        """Whether it watches no longer, because of an error."""
        return self._phase == "done"

    # -- steps ---------------------------------------------------------------------------------

    def restarted(self, mark: Mark) -> None:
        """See `StepListener`."""
        if self.active and self._phase != "done":
            with self._guarded():
                self._restart()
            self.boundary(mark)

    def _restart(self) -> None:
        self._drop_trace()
        self._timed.stop()
        if self._first_look is not None:
            self._first_look.restart()
        self._phase, self._clock, self._boundaries = "warmup", None, 0
        self._timed = self._new_timed_steps()
        self.seen.steps.clear()

    def _new_timed_steps(self) -> TimedSteps:
        ranks = self._ranks
        agreement = None if ranks.alone else StepAgreement(ranks.world_size, ranks.attempt)
        return TimedSteps(self.options.schedule, agreement)

    def boundary(self, mark: Mark) -> None:
        """See `StepListener`."""
        # A step that is being captured does not run, and an event recorded in it would be captured.
        if not self.active or cuda.is_capturing_a_graph():
            return
        # No thread of the program waits for another here: it may be what that one waits for.
        if not self._at_boundary.acquire(blocking=False):
            return
        try:
            with self._guarded():
                # Between the two a tool's recording may begin or end.
                self._step_ranges.end()
                self._boundaries += 1
                with ample_recursion():
                    self._advance(mark)
                self._beside.step_begins()
                self._on_step(self._phase, self._boundaries)
                self._step_ranges.begin(tell_time=self._phase == "profiled")
        finally:
            self._at_boundary.release()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """The script must not fail because its profiler does; what it raises itself reaches it."""
        try:
            yield
        except StopAfterSteps:
            raise
        except BaseException as error:
            self.give_up(error)
            if not is_ours(error):
                raise

    def give_up(self, error: BaseException) -> None:
        """Watch no longer, because of `error`. What was seen so far is kept."""
        self._phase = "done"
        self._finder.remove()
        self.seen.warn(f"profiling ended early: {type(error).__name__}: {reason(error)}")

    def _advance(self, mark: Mark) -> None:
        if self._phase == "warmup":
            self._warmup_boundary(mark)
        elif self._phase == "timed":
            self._timed_boundary(mark)
        elif self._phase == "profiled":
            self._profiled_boundary(mark)
        elif self._phase == "dropped" and not torch_trace.script_is_profiling():
            self._enter_profiled()

    def _warmup_boundary(self, mark: Mark) -> None:
        # What ran before the first mark that ends a step was a step too, with the set-up in it.
        steps = self._boundaries if mark.source.marks_end else self._boundaries - 1
        if self._clock is None:
            self._clock = StepClock("warmup", device_events=False)
        if self._first_look is not None:
            self._first_look.boundary(ends_a_step=steps > 0)
        warm = steps >= self.options.schedule.warmup
        looked = steps >= (1 if compiles_into_graphs() else FIRST_LOOK_STEPS)
        if (looked or warm) and not self._finder.leads_within_a_step():
            self._stop_first_look()
        self._clock.boundary(mark.tokens)
        if warm and self._finder.may_settle():
            self._finder.settle()
            self.seen.steps += self._clock.read()
            self._clock = None
            self._phase = "timed"
            self._timed.start()
            self._timed_boundary(mark)

    def _capture_begins(self) -> bool:
        """A CUDA graph is about to be captured; whether that may be profiled alone.

        What was timed before it is the program's warm-up: its steps are others from then on.
        """
        if self._phase == "timed":
            self._timed.begin_again()
        return self._phase in ("warmup", "timed", "dropped")

    def _timed_boundary(self, mark: Mark) -> None:
        if torch_trace.script_is_profiling():
            # Steps under the script's own profiler are not what we came to time.
            self.seen.warn("the script runs torch.profiler itself; steps under it were not timed")
            self._timed.start()
        if self._timed.boundary(mark.tokens, self._boundaries):
            self.seen.steps += self._timed.read()
            self._enter_profiled()

    def _close_clock(self) -> None:
        self.seen.steps += self._timed.read()
        if self._clock is not None:
            self.seen.steps += self._clock.read()
            self._clock = None

    def _enter_profiled(self) -> None:
        if self.options.schedule.profiled == 0:
            self._complete()
            return
        if cuda.in_use():
            cuda.synchronize()
        self._phase = "profiled"
        self._attempts += 1
        self._beside.start(of_steps=True)
        path = self._folder / "profiled.json"
        self._trace = TorchTrace(path, steps=self.options.schedule.profiled, allocations=True)
        self._trace.start()
        # Opens with the first recorded step: the one before it warms the profiler up.
        self._clock = StepClock("profiled", device_events=False)

    def _profiled_boundary(self, mark: Mark) -> None:
        if self._trace is None or self._clock is None:
            return
        if not self._trace.can_stop_here:
            # Of another thread of a pool: ended there, torch has no trace to save (SIGSEGV).
            return
        if not self._clock.started and cuda.in_use():
            # What is still queued would run into the first recorded step.
            cuda.synchronize()
        self._clock.boundary(mark.tokens)
        with answered_afterwards():
            self._trace.step()
            if not self._trace.complete:
                return
            if self._clock.was_set:
                self._drop_profiled("the system's clock was set during the profiled steps")
            else:
                self._close_trace()
                self._complete()

    def _close_trace(self) -> None:
        assert self._trace is not None
        self._stop_beside()
        self.seen.trace = self._trace.export()
        if cuda.in_use():
            self.seen.cupti_held_by = self._trace.cupti_held_by
            self.seen.cupti_suspect = suspected_holder()
        self._close_clock()
        self._trace = None
        if self._dropped_because is not None:
            self.seen.warn(f"{self._dropped_because}, so later ones were profiled")

    def _stop_beside(self) -> None:
        self.seen.beside_trace = self._beside.stop()
        for note in self._beside.notes:
            self.seen.warn(note)

    def _drop_profiled(self, reason: str) -> None:
        """Profile later steps, because of `reason`."""
        self._drop_trace()
        self._dropped_because = reason
        self._phase = "dropped"
        if self._attempts == _MOST_ATTEMPTS:
            self._complete()

    def _complete(self) -> None:
        self._note_found_by()
        self._graphs.end()
        self._use_first_look(complete=True)
        self._on_profiled(self)
        freed_memory.give_back()
        if self.options.stop_after:
            self._phase = "done"
            self._finder.remove()
            raise StopAfterSteps(0)
        self._phase = "later"
        # A tool that recorded the profiled steps stays attached: later ones are longer for it.
        if self.seen.cupti_held_by is None or self.options.watch:
            self._later = started_clock(watch=self.options.watch)
        every_ns = _TELLING_NS if self._tells_later else None
        if self._step_ranges.listens:
            # A tool wants a range of each step.
            every_ns = 0
        self._finder.reduce_to(counting(self._look_at_later_step, every_ns=every_ns))

    def _look_at_later_step(self, steps: int, due: bool) -> int | None:
        """See `counting`."""
        if not self.active or cuda.is_capturing_a_graph():
            return None
        until_due = sys.maxsize
        with self._guarded():
            self._step_ranges.end()
            if due and self._later is not None:
                until_due = self._later.mark()
            self._on_step(self._phase, self._boundaries + steps)
            self._step_ranges.begin(tell_time=False)
        return until_due

    def _drop_trace(self) -> None:
        if self._trace is not None:
            trace, self._trace, self._clock = self._trace, None, None
            self._beside.stop()
            try:
                trace.stop()
                trace.forget()
            except (AssertionError, RuntimeError) as error:
                # Interrupted by a signal while it started, torch's profiler cannot be stopped.
                if not is_ours(error):
                    raise

    def _note_found_by(self) -> None:
        if self._finder.leader is not None:
            self.seen.found_by = self._finder.leader.label

    # -- the first look ------------------------------------------------------------------------

    def _start_first_look(self) -> None:
        if not self.options.first_look or torch_trace.script_is_profiling():
            return
        self._no_first_look_because = impossible_because(self._folder)
        if self._no_first_look_because is not None:
            return
        self._beside.start()
        self._first_look = FirstLook(
            self._folder / "first.json",
            self._unix,
            time_is_over=self._first_look_is_over,
            allocations=self.options.from_the_start,
        )
        self._first_look.start()

    def _first_look_is_over(self) -> None:
        with self._guarded():
            if self._finder.leader is None and self._first_look is not None:
                self._first_look.end_the_step()
            self._stop_first_look()
            if self._finder.leader is None:
                self.seen.warn(
                    f"no step was marked in the first {FIRST_LOOK_SECONDS:.0f} s; only those were "
                    "profiled (mark steps with gpuprof.step() or --step-range)"
                )

    def _stop_first_look(self) -> None:
        self._graphs.stop()
        with answered_afterwards():
            if self._first_look is not None and self._first_look.stop():
                self._stop_beside()
                if cuda.in_use():
                    # Later it has no times of device work: another profile takes Kineto's buffers.
                    self._first_look.export()
                self._graphs.first_look_ended(self._first_look.export, self.seen.beside_trace)
                if self._unix.set_by_ns():
                    self.seen.warn("the system's clock was set during the first step: no profile")
                    self._first_look = None

    def _use_first_look(self, *, complete: bool = False) -> None:
        """Let the report have the first look, if no step was profiled."""
        look, self._first_look = self._first_look, None
        if self.seen.trace is not None:
            if look is not None:
                look.forget()
            return
        if self._dropped_because is not None:
            self.seen.warn(f"{self._dropped_because}, so they were dropped")
        if self._no_first_look_because is not None:
            self.seen.warn(f"{self._no_first_look_because}: the first step was not profiled")
        if look is None or (complete and self.options.schedule.profiled == 0):
            return
        if not look.steps:
            self.seen.warn(
                "the profile of the first step ended before the step did, and the script before "
                "its profiled steps: nothing was profiled (give fewer --warmup and --timed)"
            )
            return
        self.seen.trace, self.seen.first_look_steps = look.export(), look.steps

    def _yield_profiler(self) -> None:
        """The script is about to start a profiler of its own."""
        if not self.active:
            return
        with self._guarded():
            self._stop_first_look()
            if self._trace is None or self._clock is None:
                return
            because = "the script started torch.profiler during the profiled steps"
            recorded, wanted = self._clock.steps, self.options.schedule.profiled
            if recorded == 0 or self._clock.was_set or not self._trace.can_stop_here:
                self._drop_profiled(because)
                return
            self.seen.warn(f"{because}, so {recorded} of {wanted} were profiled")
            self._trace.stop()
            self._close_trace()
            self._complete()

    # -- the end -------------------------------------------------------------------------------

    def finish(self) -> Observations:
        """Stop watching and return what was seen. What is under way is kept as far as it got.

        On another thread than the one that steps, profiles that still run are lost.
        """
        if current_session.current is self:
            current_session.current = None
        if not self.active:
            return self.seen
        self.seen.ended_ns = self._unix.now_ns()
        self._note_found_by()
        self._finder.remove()
        if self._first_look is not None:
            self._first_look.end_the_step()
        ending = (self._read_later, self._stop_first_look, self._finish_trace, self._use_first_look)
        # One that hangs there is not waited for any longer.
        waited = self._at_boundary.acquire(timeout=_PATIENCE_S)
        try:
            for piece in ending:
                with self._guarded():
                    piece()
        finally:
            if waited:
                self._at_boundary.release()
        sampled = self.seen.beside_trace.get("samples") or self._beside.notes
        if self.options.pm_sampling and not sampled:
            self.seen.warn("--pm-sampling counted nothing: no GPU worked in a profiled step")
        self.seen.warnings += clock_warnings(self._unix, self.seen)
        return self.seen

    def _read_later(self) -> None:
        if self._later is not None:
            read_clock(self._later, self.seen)

    def _finish_trace(self) -> None:
        if self._trace is None:
            self._close_clock()
        elif self._clock is not None and self._clock.steps > 0 and self._trace.can_stop_here:
            self._trace.stop()
            if not self._clock.was_set:
                self._close_trace()
        if self._trace is None or self._trace.can_stop_here:
            self._drop_trace()

    def close(self) -> None:
        """Remove the temporary files and restore what was replaced."""
        if self.active:
            self._exits.close()
