"""Steps after the profiled ones: one mark each, blocks in bounded memory, and what they say."""

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.manifest import LaterSteps
from gpuprof.collectors.steps import later
from gpuprof.collectors.steps.later import LaterStepsClock
from gpuprof.profiler.run import later_steps
from gpuprof.profiler.run.later_steps import counting
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.steps.settling import later_median_ns


class HostClock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now_ns = 5_000

    def perf_counter_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> HostClock:
    clock = HostClock()
    monkeypatch.setattr(later, "time", clock)
    return clock


def marked(host: HostClock, lengths: list[int]) -> LaterSteps | None:
    marks = LaterStepsClock(device_events=False)
    until_due = marks.mark()
    for length in lengths:
        host.now_ns += length
        until_due = until_due - 1 or marks.mark()
    return marks.read()


def test_without_a_whole_step_nothing_was_seen(host: HostClock) -> None:
    assert LaterStepsClock(device_events=False).read() is None
    assert marked(host, []) is None


def test_few_steps_are_kept_each(host: HostClock) -> None:
    assert marked(host, [10, 20, 30]) == LaterSteps(block_steps=1, blocks_ns=(10, 20, 30))


@pytest.mark.parametrize("steps", [63, 64, 65, 1000, 100_000])
def test_many_steps_are_kept_in_bounded_memory_and_lose_no_time(
    host: HostClock, steps: int
) -> None:
    lengths = [100 + index % 7 for index in range(steps)]
    found = marked(host, lengths)
    assert found is not None
    assert len(found.blocks_ns) < 64
    counted = found.block_steps * len(found.blocks_ns)
    assert steps - counted < found.block_steps
    assert sum(found.blocks_ns) == sum(lengths[:counted])


def test_most_steps_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    looked: list[tuple[int, bool]] = []
    wanted = iter([2, 3, 100])

    def look(steps: int, due: bool) -> int:
        looked.append((steps, due))
        return next(wanted) if due else 10**9

    monkeypatch.setattr(later_steps, "monotonic_ns", lambda: now_ns)
    step = counting(look, every_ns=1000)
    for _ in range(20):
        now_ns += 100
        step()
    # By what was wanted, and a thousand nanoseconds after the look before.
    assert looked == [(1, True), (3, True), (6, True), (16, False)]


def test_where_nobody_is_told_no_clock_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[tuple[int, bool]] = []
    wanted = iter([2, 3, 100])

    def look(steps: int, due: bool) -> int:
        looked.append((steps, due))
        return next(wanted)

    monkeypatch.delattr(later_steps, "monotonic_ns")
    step = counting(look, every_ns=None)
    for _ in range(20):
        step()
    assert looked == [(1, True), (3, True), (6, True)]


@pytest.mark.parametrize("every_ns", [10**18, None])
def test_what_was_no_step_is_not_counted(every_ns: int | None) -> None:
    looked: list[int] = []
    answers = iter([4, None, None, 4])

    def look(steps: int, due: bool) -> int | None:
        looked.append(steps)
        return next(answers)

    step = counting(look, every_ns=every_ns)
    for _ in range(8):
        step()
    assert looked == [1, 5, 5, 5]


def test_the_median_is_of_blocks_in_which_the_device_keeps_up() -> None:
    # The host queues three steps at once and waits for the device in every fourth.
    bursts = LaterSteps(block_steps=1, blocks_ns=(1, 1, 1, 397) * 15)
    assert later_median_ns(bursts) == pytest.approx(100, rel=0.35)
    joined = LaterSteps(block_steps=8, blocks_ns=(800,) * 40)
    assert later_median_ns(joined) == 100


def warned(build: CaptureBuilder, timed_ns: list[int], blocks_ns: tuple[int, ...]) -> list[str]:
    for index, nanoseconds in enumerate(timed_ns):
        build.step("timed", 10_000 + index, 10_001 + index, device_ns=nanoseconds)
    found = LaterSteps(block_steps=2, blocks_ns=blocks_ns)
    analysis = analyze(build.build(later_steps=found))
    assert analysis.steps.later == 2 * len(blocks_ns)
    return [text for text in analysis.warnings if "after the profiled ones" in text]


def test_later_steps_of_another_length_are_a_warning(build: CaptureBuilder) -> None:
    (sentence,) = warned(build, [46_900_000] * 10, (60_200_000,) * 20)
    assert "40 steps after the profiled ones took 30.1 ms each" in sentence
    assert "the 10 timed ones 46.9 ms (-35.8% later)" in sentence


def test_later_steps_within_the_spread_of_the_timed_ones_are_none(build: CaptureBuilder) -> None:
    assert warned(build, [100, 130, 100, 130, 100, 130], (240,) * 20) == []


def test_a_handful_of_later_steps_says_nothing(build: CaptureBuilder) -> None:
    assert warned(build, [100] * 10, (600,) * 4) == []


class Event:
    """A moment on a device that does each step in 40 ns, long after the host has marked it."""

    reached_ns = 0

    def __init__(self) -> None:
        Event.reached_ns += 40
        self.at_ns = Event.reached_ns

    def wait(self) -> None:
        return None

    def ns_until(self, later: "Event") -> int:
        return later.at_ns - self.at_ns


def test_on_a_gpu_the_device_s_own_clock_counts(
    host: HostClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "StreamMoment", Event)
    marks = LaterStepsClock(device_events=True)
    for _ in range(21):
        host.now_ns += 1
        marks.mark()
    assert marks.read() == LaterSteps(block_steps=1, on_device=True, blocks_ns=(40,) * 20)


def test_a_device_that_failed_leaves_the_host_s_clock(
    host: HostClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Event):
        def wait(self) -> None:
            raise RuntimeError("CUDA error")

    monkeypatch.setattr(later, "StreamMoment", Broken)
    marks = LaterStepsClock(device_events=True)
    for _ in range(3):
        host.now_ns += 7
        marks.mark()
    assert marks.read() == LaterSteps(block_steps=1, blocks_ns=(7, 7))
