"""Which of the steps that were timed count, on a device that settles."""

from collections.abc import Iterable

from gpuprof.collectors.manifest import Schedule
from gpuprof.collectors.steps.step_time import StepTime
from gpuprof.profiler.run.timed_steps import TimedSteps

MS = 1_000_000


def timed(
    lengths_ms: Iterable[float], *, settling_ms: int = 1000, least_ms: int = 0
) -> tuple[int, list[float]]:
    """How many steps were warm-up, and the lengths of the timed ones, ten or more, in ms."""
    schedule = Schedule(settling_ns=settling_ms * MS, least_timed_ns=least_ms * MS)
    steps = TimedSteps(schedule)
    for length in lengths_ms:
        if steps.missing() <= 0:
            break
        steps.take(
            [
                StepTime(
                    phase="timed",
                    start_ns=0,
                    end_ns=0,
                    host_ns=0,
                    device_ns=round(length * MS),
                    tokens=None,
                )
            ]
        )
    found = steps.read()
    return (
        sum(step.phase == "warmup" for step in found),
        [(step.device_ns or 0) / MS for step in found if step.phase == "timed"],
    )


def test_steps_are_timed_until_they_have_lasted() -> None:
    assert timed([20.0] * 200, settling_ms=0, least_ms=300) == (0, [20.0] * 15)
    assert timed([50.0] * 200, settling_ms=0, least_ms=300) == (0, [50.0] * 10)
    # Very short ones are not timed without end.
    warmup, lengths = timed([0.01] * 5000, settling_ms=0, least_ms=300)
    assert (warmup, len(lengths)) == (0, 2000)


def test_without_a_gpu_no_more_are_timed_than_asked_for() -> None:
    steps = TimedSteps(Schedule(timed=2, least_timed_ns=300 * MS))
    step = StepTime(phase="timed", start_ns=0, end_ns=9, host_ns=9, device_ns=None, tokens=None)
    steps.take([step, step])
    assert steps.missing() == 0


def test_a_steady_device_has_settled_after_the_settling_time() -> None:
    assert timed([20.0] * 200) == (50, [20.0] * 10)


def test_a_device_that_still_changes_is_waited_for() -> None:
    lengths = [20.0] * 30 + [21.3] * 40 + [20.0] * 400
    early, found = timed(lengths)
    assert found == [20.0] * 10
    assert 70 < early < 200


def test_steps_that_never_agree_are_waited_for_no_longer_than_three_times() -> None:
    early, _ = timed([20.0 + index * 0.1 for index in range(1000)])
    assert early < 3000 / 20


def test_a_step_longer_than_the_settling_time_is_enough() -> None:
    assert timed([2000.0] * 20) == (1, [2000.0] * 10)


def test_what_was_asked_for_is_taken_at_its_word() -> None:
    assert timed([20.0, 30.0] * 20, settling_ms=0)[0] == 0
