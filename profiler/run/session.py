"""One profiling session in a live process: finds steps, times them, then profiles a few.

    warm-up steps -> timed steps, no profiler -> profiled steps -> nothing more is watched

While steps are being looked for, the *first look* profiles from the start to the first complete
step. It is what the report has to show where a script ends before its profiled steps, or never
steps at all; a script that steps long enough never needs it and it is dropped.
"""

import _thread
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpuprof.collectors.live import cuda, nvtx_ranges, torch_trace
from gpuprof.collectors.live.torch_trace import TorchTrace
from gpuprof.collectors.manifest import Schedule
from gpuprof.collectors.steps.clock import StepClock, StepTime
from gpuprof.collectors.steps.finder import StepFinder
from gpuprof.collectors.steps.sources import (
    ExplicitSteps,
    ForwardCalls,
    GraphReplays,
    Mark,
    OptimizerSteps,
    ProfilerSteps,
    RangeSteps,
    StepSource,
)

# A script that never steps is watched no longer than this, so that memory stays bounded.
FIRST_LOOK_SECONDS = 20.0
# Delivered by interrupt_main only; the operating system never sends it.
_FIRST_LOOK_SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGTERM)


class StopAfterSteps(SystemExit):
    """Ends the script once the profiled steps are done, as `--stop-after` asks."""


@dataclass(frozen=True)
class SessionOptions:
    """What to watch and for how long."""

    schedule: Schedule = field(default_factory=Schedule)
    # The name of a step source, or "script" for none, forces where steps come from.
    steps: str | None = None
    step_range: str | None = None
    stop_after: bool = False
    # False where another tool holds the device's tracing interface.
    first_look: bool = True


@dataclass
class Observations:
    """What a session has seen so far; `gpuprof.profiler.run.assemble` makes a capture of it."""

    started_ns: int
    ended_ns: int | None = None
    found_by: str | None = None
    steps: list[StepTime] = field(default_factory=list)
    ranges: list[nvtx_ranges.RecordedRange] = field(default_factory=list)
    trace: Path | None = None
    # True where `trace` is the first look, not the profiled steps.
    trace_is_first_look: bool = False
    # Where the first step begins, if its start could be seen, and where the first look ends.
    first_step_start_ns: int | None = None
    first_look_end_ns: int | None = None
    warnings: list[str] = field(default_factory=list)


class Session:
    """Watches this process from `start` to `finish`. One at a time in a process."""

    current: "Session | None" = None

    def __init__(
        self,
        options: SessionOptions,
        *,
        on_profiled: Callable[["Session"], None] = lambda session: None,
    ) -> None:
        self.options = options
        self.explicit = ExplicitSteps()
        self._on_profiled = on_profiled
        self._finder = StepFinder(self._sources(), self)
        self._phase = "warmup"
        self._clock: StepClock | None = None
        self._boundaries = 0
        self._trace: TorchTrace | None = None
        self._first_look: TorchTrace | None = None
        self._first_look_thread: int | None = None
        self._first_look_timer: threading.Timer | None = None
        self._exits = ExitStack()
        self._process = os.getpid()
        self.seen = Observations(started_ns=time.time_ns())

    def _sources(self) -> Sequence[StepSource]:
        sources: list[StepSource] = [self.explicit, ProfilerSteps(torch_trace.own_profilers)]
        if self.options.step_range is not None:
            sources.append(RangeSteps(self.options.step_range))
        sources += [OptimizerSteps(), ForwardCalls(), GraphReplays()]
        if self.options.steps is not None:
            sources = [source for source in sources if source.name == self.options.steps]
        return sources

    def start(self) -> None:
        """Begin to watch; the calling thread is taken for the one that steps."""
        Session.current = self
        nvtx_ranges.install()
        # Not TemporaryDirectory: it would also clean up when a forked child exits.
        self._folder = Path(tempfile.mkdtemp(prefix="gpuprof-"))
        self._exits.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._exits.enter_context(torch_trace.yielding_to(self._yield_profiler))
        self._finder.install()
        self._start_first_look()
        self.seen.started_ns = time.time_ns()

    @property
    def active(self) -> bool:
        """False in a forked child, where nothing may be watched or written."""
        return os.getpid() == self._process

    # -- steps ---------------------------------------------------------------------------------

    def restarted(self, mark: Mark) -> None:
        """See `StepListener`."""
        if not self.active:
            return
        self._drop_trace()
        self._phase, self._clock, self._boundaries = "warmup", None, 0
        self.seen.steps.clear()
        self.boundary(mark)

    def boundary(self, mark: Mark) -> None:
        """See `StepListener`."""
        # A step that is being captured does not run, and an event recorded in it would be captured.
        if not self.active or cuda.is_capturing_a_graph():
            return
        try:
            self._advance(mark)
        except Exception as error:
            # The script must not fail because its profiler does. What was seen so far is kept.
            self._phase = "done"
            self._finder.remove()
            self._warn_once(f"profiling ended early: {type(error).__name__}: {error}")

    def _advance(self, mark: Mark) -> None:
        self._boundaries += 1
        if self._phase == "warmup":
            self._warmup_boundary(mark)
        elif self._phase == "timed":
            self._timed_boundary(mark)
        elif self._phase == "profiled":
            self._profiled_boundary(mark)

    def _warmup_boundary(self, mark: Mark) -> None:
        # What ran before the first mark that ends a step was a step too, with the set-up in it.
        steps = self._boundaries if mark.source.marks_end else self._boundaries - 1
        if self._clock is None:
            self._clock = StepClock("warmup", device_events=False)
        if steps == 0:
            self.seen.first_step_start_ns = time.time_ns()
        else:
            self._stop_first_look()
        self._clock.boundary(mark.tokens)
        if steps >= self.options.schedule.warmup and self._finder.may_settle():
            self._finder.settle()
            self.seen.steps += self._clock.read()
            self._enter_timed(mark)

    def _enter_timed(self, mark: Mark) -> None:
        self._phase = "timed"
        self._clock = StepClock("timed", device_events=cuda.in_use())
        self._timed_boundary(mark)

    def _timed_boundary(self, mark: Mark) -> None:
        assert self._clock is not None
        if torch_trace.script_is_profiling():
            # Steps under the script's own profiler are not what we came to time.
            self._warn_once("the script runs torch.profiler itself; steps under it were not timed")
            self._clock = StepClock("timed", device_events=cuda.in_use())
        self._clock.boundary(mark.tokens)
        if self._clock.steps >= self.options.schedule.timed:
            self._close_clock()
            self._enter_profiled()

    def _close_clock(self) -> None:
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
        nvtx_ranges.start_recording()
        path = self._folder / "profiled.json"
        self._trace = TorchTrace(path, steps=self.options.schedule.profiled)
        self._trace.start()
        # Opens with the first recorded step: the one before it warms the profiler up.
        self._clock = StepClock("profiled", device_events=False)

    def _profiled_boundary(self, mark: Mark) -> None:
        if self._trace is None or self._clock is None:
            return
        if not self._clock.started and cuda.in_use():
            # What is still queued would run into the first recorded step.
            cuda.synchronize()
        self._clock.boundary(mark.tokens)
        self._trace.step()
        if self._trace.complete:
            self._close_trace()
            self._complete()

    def _close_trace(self) -> None:
        assert self._trace is not None
        nvtx_ranges.stop_recording()
        self.seen.ranges = nvtx_ranges.take_recorded()
        self.seen.trace = self._trace.export()
        self.seen.trace_is_first_look = False
        self._close_clock()
        self._trace = None

    def _complete(self) -> None:
        self._phase = "done"
        self._note_found_by()
        self._finder.remove()
        self._first_look = None
        self._on_profiled(self)
        if self.options.stop_after:
            raise StopAfterSteps(0)

    def _drop_trace(self) -> None:
        if self._trace is not None:
            # Interrupted by a signal while it started, torch's profiler cannot be stopped.
            with suppress(AssertionError, RuntimeError):
                self._trace.stop()
            self._trace = None
            self._clock = None
            nvtx_ranges.stop_recording()
            nvtx_ranges.take_recorded()

    def _note_found_by(self) -> None:
        if self._finder.leader is not None:
            self.seen.found_by = self._finder.leader.label

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self.seen.warnings:
            self.seen.warnings.append(sentence)

    # -- the first look ------------------------------------------------------------------------

    def _start_first_look(self) -> None:
        if not self.options.first_look or torch_trace.script_is_profiling():
            return
        nvtx_ranges.start_recording()
        self._first_look = TorchTrace(self._folder / "first.json", steps=None)
        self._first_look.start()
        self._first_look_thread = threading.get_ident()
        if threading.current_thread() is threading.main_thread():
            previous = signal.signal(_FIRST_LOOK_SIGNAL, self._first_look_signalled)
            self._exits.callback(signal.signal, _FIRST_LOOK_SIGNAL, previous)
            timer = threading.Timer(
                FIRST_LOOK_SECONDS, _thread.interrupt_main, [_FIRST_LOOK_SIGNAL]
            )
            timer.daemon = True
            timer.start()
            self._first_look_timer = timer

    def _first_look_signalled(self, *_: object) -> None:
        if self._first_look is not None and self.seen.first_look_end_ns is None:
            if self._finder.leader is None:
                self._warn_once(
                    f"no step was marked in the first {FIRST_LOOK_SECONDS:.0f} s; only those were "
                    "profiled (mark steps with gpuprof.step() or --step-range)"
                )
            self._stop_first_look()

    def _stop_first_look(self) -> None:
        if self._first_look is None or self.seen.first_look_end_ns is not None:
            return
        if threading.get_ident() != self._first_look_thread:
            # A profiler can only be stopped where it was started.
            _thread.interrupt_main(_FIRST_LOOK_SIGNAL)
            return
        self._first_look.stop()
        self.seen.first_look_end_ns = time.time_ns()
        nvtx_ranges.stop_recording()
        self.seen.ranges = nvtx_ranges.take_recorded()
        if self._first_look_timer is not None:
            self._first_look_timer.cancel()

    def _yield_profiler(self) -> None:
        """The script is about to start a profiler of its own."""
        if not self.active:
            return
        self._stop_first_look()
        if self._trace is not None:
            self._drop_trace()
            self._warn_once(
                "the script started torch.profiler during the profiled steps, so they were dropped"
            )
            self._complete()

    # -- the end -------------------------------------------------------------------------------

    def finish(self) -> Observations:
        """Stop watching and return what was seen. What is under way is kept as far as it got."""
        if Session.current is self:
            Session.current = None
        if not self.active:
            return self.seen
        self.seen.ended_ns = time.time_ns()
        self._note_found_by()
        self._finder.remove()
        self._stop_first_look()
        if self._trace is None:
            self._close_clock()
        elif self._clock is not None and self._clock.steps > 0:
            self._trace.stop()
            self._close_trace()
        self._drop_trace()
        if self.seen.trace is None and self._first_look is not None:
            self.seen.trace = self._first_look.export()
            self.seen.trace_is_first_look = True
        return self.seen

    def close(self) -> None:
        """Remove the temporary files and restore what was replaced."""
        if self.active:
            self._exits.close()
