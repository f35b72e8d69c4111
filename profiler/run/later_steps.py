"""Steps after the profiled ones: a mark each, and with `--watch` what differed in each."""

from gpuprof.collectors.live import cuda
from gpuprof.collectors.steps.later import LaterStepsClock
from gpuprof.collectors.steps.watched import WatchedStepsClock
from gpuprof.profiler.run.observations import Observations

LaterClock = LaterStepsClock | WatchedStepsClock


def started_clock(*, watch: bool) -> LaterClock:
    """A clock of the steps from now on."""
    if not watch:
        return LaterStepsClock(device_events=cuda.in_use())
    clock = WatchedStepsClock(device_events=cuda.in_use())
    clock.start()
    return clock


def read_clock(clock: LaterClock, seen: Observations) -> None:
    """Put what `clock` saw into `seen`; it is at its end."""
    if isinstance(clock, WatchedStepsClock):
        clock.stop()
        seen.watched_steps = clock.read()
    else:
        seen.later_steps = clock.read()
