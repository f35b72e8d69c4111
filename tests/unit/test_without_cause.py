"""What a step takes without one cause of waiting, against a small simulation of host and device."""

import random

import pytest

from gpuprof.roofline.advice.without_cause import Step
from gpuprof.roofline.idle_figures import IdleCause, IdleTime
from gpuprof.roofline.step_figures import StepTimes

MS = 1_000_000


def step_ms(pause: float, launching: float, work: float, *, waits: bool, steps: int = 40) -> float:
    """One of many steps whose host pauses, then launches at once what the device does.

    With `waits` the host waits for the device at the end of each step.
    """
    host = device = 0.0
    ends = []
    for _ in range(steps):
        host += pause + launching
        device = max(device, host) + work
        if waits:
            host = device
        ends.append(device)
    return (ends[-1] - ends[steps // 2]) / (steps - 1 - steps // 2)


def found(pause: float, launching: float, work: float, *, waits: bool) -> IdleCause:
    """What is seen of that pause: the device hides what it still works meanwhile."""
    length = step_ms(pause, launching, work, waits=waits)
    idle = length - work
    # Of a host that runs ahead nothing shows: the pause is as much hidden as the rest.
    exposed = pause if waits else max(0.0, min(pause, idle - launching))
    return IdleCause(
        kind="data loader",
        nanoseconds=round(exposed * MS),
        least_ns=round(exposed * MS),
        most_ns=round(exposed * MS),
        profiled_ns=round(exposed * MS),
        counted_ns=round(pause * MS),
        hidden_ns=0 if waits else round((pause - exposed) * MS),
    )


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_the_step_that_is_left_is_that_of_the_simulation(seed: int, waits: bool) -> None:
    pick = random.Random(seed)
    pause, launching, work = (pick.uniform(0.1, 10) for _ in range(3))
    cause = found(pause, launching, work, waits=waits)
    before, after = (step_ms(each, launching, work, waits=waits) for each in (pause, 0.0))
    idle = IdleTime(
        nanoseconds=round((before - work) * MS),
        profiled_ns=round((before - work) * MS),
        basis="timed",
        causes=(cause,),
    )
    gain = Step(idle, times(before), on_cpu=False).gain_without(cause)
    assert before - gain.ns / MS == pytest.approx(after, abs=1e-5)
    # What was counted goes, however much of it the device hides.
    assert gain.least_ns == gain.ns <= gain.most_ns


def times(length_ms: float, profiled_ms: float | None = None) -> StepTimes:
    return StepTimes(
        found_by="test",
        warmup=1,
        timed=5,
        profiled=3,
        clock="CUDA events",
        median_ns=round(length_ms * MS),
        profiled_mean_ns=None if profiled_ms is None else round(profiled_ms * MS),
    )


def pausing(**more: int | None) -> tuple[IdleCause, IdleTime]:
    """90 of a step of 100 ms, in which the device works for 2."""
    cause = IdleCause(kind="garbage collection", nanoseconds=90 * MS, profiled_ns=90 * MS, **more)  # type: ignore[arg-type]
    launches = IdleCause(kind="launch", nanoseconds=8 * MS, profiled_ns=8 * MS)
    return cause, IdleTime(
        nanoseconds=98 * MS, profiled_ns=98 * MS, basis="timed", causes=(cause, launches)
    )


def test_what_is_left_may_be_as_short_as_without_the_profiler() -> None:
    cause, idle = pausing(counted_ns=90 * MS, profiled_host_ns=90 * MS)
    # Profiled steps have 11.75 ms beside it, which are 5 at least without the profiler.
    step = Step(idle, times(100, 101.75), on_cpu=False)
    gain = step.gain_without(cause)
    assert (gain.ns, gain.most_ns) == (90 * MS, 95 * MS)
    assert "cold caches" in step.why_uncertain(cause, gain)
    # And no shorter than the device's work.
    short = Step(idle, times(100, 92), on_cpu=False).gain_without(cause)
    assert short.most_ns == 98 * MS


def test_a_range_that_is_small_needs_no_word() -> None:
    cause, idle = pausing(counted_ns=90 * MS)
    step = Step(idle, times(100), on_cpu=False)
    assert step.why_uncertain(cause, step.gain_without(cause)) == ""


def test_workers_that_compute_limit_what_is_likely_and_not_what_is_possible() -> None:
    cause, idle = pausing()
    gain = Step(idle, times(100), on_cpu=False).gain_without(cause, left_ns=40 * MS)
    assert (gain.ns, gain.least_ns, gain.most_ns) == (60 * MS, 60 * MS, 90 * MS)


def test_on_a_cpu_all_that_was_counted_goes() -> None:
    cause, idle = pausing(counted_ns=80 * MS)
    gain = Step(idle, times(100), on_cpu=True).gain_without(cause)
    assert (gain.ns, gain.least_ns, gain.most_ns) == (80 * MS, 80 * MS, 80 * MS)
