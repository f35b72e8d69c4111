"""Steps after the profiled ones: counted, and looked at where their clock wants a mark.

A program may make a thousand of them a second for days. So at most of them nothing happens but an
addition, and where somebody is shown how it goes on a look at the time.
"""

from collections.abc import Callable

from gpuprof.collectors.live import cuda
from gpuprof.collectors.live.unix_clock import monotonic_ns
from gpuprof.collectors.steps.later import LaterStepsClock
from gpuprof.collectors.steps.sources import StepCallback
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


def counting(look: Callable[[int, bool], int | None], *, every_ns: int | None) -> StepCallback:
    """What is to be called at each step, and calls `look` at few.

    `look(steps, due)` is called every `every_ns`, and at the step at which it is due: first at the
    first one, then so many after that as it has returned. None: this was no step after all. Without
    `every_ns` it is called only where it is due, and no clock is read.
    """
    steps, due_at, again_ns = 0, 1, 0

    def looked(now_ns: int) -> None:
        nonlocal steps, due_at, again_ns
        due = steps == due_at
        until_due = look(steps, due)
        if until_due is None:
            steps -= 1
            return
        again_ns = now_ns + (every_ns or 0)
        if due:
            due_at = steps + until_due

    def counted() -> None:
        nonlocal steps
        steps += 1
        if steps >= due_at:
            looked(0)

    def step() -> None:
        nonlocal steps
        steps += 1
        now_ns = monotonic_ns()
        if steps >= due_at or now_ns >= again_ns:
            looked(now_ns)

    return counted if every_ns is None else step
