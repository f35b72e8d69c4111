"""Profiles a program from its start until its third step is complete, in case no more comes.

The first step holds the set-up, what is compiled and what libraries load; the others are as those
that follow, so that where there is one the first does not count as profiled. Of two it shows which
of what they wait for is in each step.

What the leading marks mean may only show later: a forward call is a step of its own until an
optimizer ends a step of several. So the first look keeps the steps that lie whole in it, by the
marks that lead at the end; one that ended too soon holds none.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

from gpuprof.collectors.live import cuda
from gpuprof.collectors.live.torch_trace import TorchTrace, cupti_held_by, initialise
from gpuprof.collectors.live.unix_clock import UnixClock
from gpuprof.profiler.run.main_thread import call_on_main_thread, is_called_by_torch

FIRST_LOOK_STEPS = 3
# A script that never steps is watched no longer than this, so that memory stays bounded.
FIRST_LOOK_SECONDS = 20.0
_ONCE_MORE_SECONDS = 0.2


def impossible_because(folder: Path) -> str | None:
    """Why there can be no first look on this thread; None where there can.

    `folder` is for what torch's profiler writes where it has to begin on another thread.
    """
    if threading.current_thread() is not threading.main_thread():
        # It may only have loaded torch for another thread, and a profile stays on its own.
        initialise(folder)
        return "torch was imported by another thread than the main one"
    holder = cupti_held_by()
    # Kineto would ask for CUPTI before the program has started CUDA, and get it.
    return None if holder is None else f"{holder} holds CUPTI"


class FirstLook:
    """The first look; begins with `start`, ends with `stop` or when its time is over."""

    def __init__(
        self,
        path: Path,
        clock: UnixClock,
        *,
        time_is_over: Callable[[], None],
        allocations: bool = False,
    ) -> None:
        """`time_is_over` is called on the main thread, if the first look began there.

        `allocations`: as in `TorchTrace`; torch warns of what was allocated earlier.
        """
        self.running = False
        # Start and end of each step that lies whole in it and counts, in Unix time.
        self.steps: list[tuple[int, int]] = []
        self._ended = 0
        self._clock = clock
        # Where the step under way began, and where the first one did.
        self._since_ns = self._first_ns = clock.now_ns()
        self._time_is_over = time_is_over
        self._trace = TorchTrace(path, steps=None, allocations=allocations)
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """Begin to profile the calling thread."""
        self._trace.start()
        self._since_ns = self._first_ns = self._clock.now_ns()
        self.running = True
        if threading.current_thread() is threading.main_thread():
            self._end_in(FIRST_LOOK_SECONDS)

    def _end_in(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, call_on_main_thread, [self._over])
        self._timer.daemon = True
        self._timer.start()

    def _over(self) -> None:
        if not self.running:
            return
        # A profile that stops waits for the device, which ends a capture in an error; and one that
        # stops within an operator or a compilation takes the process with it (SIGSEGV, torch 2.11
        # and 2.13, after "Tensor metadata exhausted prematurely").
        if cuda.is_capturing_a_graph() or is_called_by_torch(sys._getframe()):
            self._end_in(_ONCE_MORE_SECONDS)
        else:
            self._time_is_over()

    def boundary(self, *, ends_a_step: bool) -> None:
        """One step boundary; the first one of marks that begin steps ends none."""
        if not self.running:
            return
        now_ns = self._clock.now_ns()
        if ends_a_step:
            self._ended += 1
            # The first counts only where it is alone.
            if self._ended == 2:
                self.steps.clear()
            self.steps.append((self._since_ns, now_ns))
        else:
            self._first_ns = now_ns
        self._since_ns = now_ns

    def restart(self) -> None:
        """Other marks are the steps: what earlier ones bounded were none."""
        self.steps.clear()
        self._ended = 0
        self._since_ns = self._first_ns

    def end_the_step(self) -> None:
        """Take what ran so far for the first step: the program ends, or has marked none."""
        if self.running and not self.steps:
            self.steps.append((self._since_ns, self._clock.now_ns()))

    def stop(self) -> bool:
        """End it, if it runs and on the thread that began it; whether it ended here and now."""
        if not self.running or not self._trace.can_stop_here:
            return False
        self.running = False
        self._trace.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return True

    def export(self) -> Path | None:
        """The trace as a file; None where it could not be ended."""
        return None if self.running else self._trace.export()

    def forget(self) -> None:
        """Free what was recorded: nobody will want the trace."""
        self._trace.forget()
