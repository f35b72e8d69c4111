"""Times of steps between their boundaries."""

import sys

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, dataloader

from gpuprof.collectors.live import unix_clock
from gpuprof.collectors.steps import clock as step_clock
from gpuprof.collectors.steps.clock import StepClock


class FakeTime:
    """Clocks that advance when told; the wall clock may jump."""

    def __init__(self) -> None:
        self.monotonic, self.wall = 1000, 5_000_000

    def perf_counter_ns(self) -> int:
        return self.monotonic

    def time_ns(self) -> int:
        return self.wall


class FakeStreamMoment:
    """A device that takes 100 ns from the first point to the second, and 1 ns more each time."""

    clock: "FakeTime"

    waited: list["FakeStreamMoment"]
    made: list["FakeStreamMoment"]

    def __init__(self) -> None:
        self.number = len(self.made)
        self.made.append(self)

    def wait(self) -> None:
        self.waited.append(self)
        # The host was far ahead.
        self.clock.monotonic += 1000
        self.clock.wall += 1000

    def ns_until(self, later: "FakeStreamMoment") -> int:
        assert later in self.waited or self.made[-1] in self.waited
        return sum(100 + number for number in range(self.number, later.number))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    FakeStreamMoment.clock, FakeStreamMoment.waited, FakeStreamMoment.made = fake, [], []
    monkeypatch.setattr(step_clock, "monotonic_ns", fake.perf_counter_ns)
    monkeypatch.setattr(unix_clock, "monotonic_ns", fake.perf_counter_ns)
    monkeypatch.setattr(unix_clock, "unix_ns", fake.time_ns)
    monkeypatch.setattr(step_clock, "StreamMoment", FakeStreamMoment)
    return fake


def test_a_step_lies_between_two_boundaries(clock: FakeTime) -> None:
    steps = StepClock("timed", device_events=False)
    assert (steps.steps, steps.read()) == (0, [])
    for length, tokens in ((0, 1), (30, 2), (50, 3)):
        clock.monotonic += length
        clock.wall += length
        steps.boundary(tokens)
    assert steps.steps == 2
    first, second = steps.read()
    assert (first.phase, first.start_ns, first.end_ns) == ("timed", 5_000_000, 5_000_030)
    assert (first.host_ns, second.host_ns) == (30, 50)
    # What a boundary says of tokens is about the step that it ends.
    assert (first.tokens, second.tokens) == (2, 3)
    assert first.device_ns is None


def test_a_step_waited_for_its_core_as_long_as_the_count_grew(
    clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[int | None] = [100, 140, 140, None]
    monkeypatch.setattr(step_clock.RunDelay, "read_ns", lambda self: readings.pop(0))
    steps = StepClock("timed", device_events=False)
    for _ in range(4):
        steps.boundary()
    assert [step.run_delay_ns for step in steps.read()] == [40, 0, None]


def test_durations_do_not_follow_a_wall_clock_that_jumps(clock: FakeTime) -> None:
    steps = StepClock("timed", device_events=False)
    steps.boundary()
    clock.monotonic += 30
    clock.wall -= 1000
    steps.boundary()
    assert steps.read()[0].host_ns == 30


def test_device_times_are_read_after_the_last_step_only(clock: FakeTime) -> None:
    steps = StepClock("timed", device_events=True)
    for _ in range(3):
        steps.boundary()
    assert FakeStreamMoment.waited == []
    assert [step.device_ns for step in steps.read()] == [100, 101]
    assert FakeStreamMoment.waited == [FakeStreamMoment.made[-1]]


def test_the_device_began_a_step_so_long_before_all_was_done(clock: FakeTime) -> None:
    steps = StepClock("timed", device_events=True)
    for _ in range(3):
        steps.boundary()
        clock.monotonic += 5
        clock.wall += 5
    first, second = steps.read()
    done_ns = 5_000_015 + 1000
    # The last boundary is 102 ns before the point that was waited for.
    assert second.device_start_ns == done_ns - 102 - 101
    assert first.device_start_ns == done_ns - 102 - 101 - 100
    assert first.start_ns == 5_000_000


def test_a_device_that_failed_leaves_the_hosts_times(
    clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = StepClock("timed", device_events=True)
    for _ in range(2):
        steps.boundary()
        clock.monotonic += 30

    def fail(self: FakeStreamMoment) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(FakeStreamMoment, "wait", fail)
    (step,) = steps.read()
    assert (step.host_ns, step.device_ns, step.device_start_ns) == (30, None, None)


def test_a_timed_step_knows_how_long_its_loader_took_and_gives_it_back() -> None:
    original = dataloader._BaseDataLoaderIter.__next__
    loader = iter(DataLoader(TensorDataset(torch.arange(6)), batch_size=2))
    timed = StepClock("timed", device_events=False)
    timed.boundary()
    next(loader)
    timed.boundary()
    timed.boundary()
    loading, other = timed.read()
    assert loading.loader_ns is not None
    assert 0 < loading.loader_ns <= loading.host_ns
    assert other.loader_ns == 0
    assert dataloader._BaseDataLoaderIter.__next__ is original


@pytest.mark.parametrize("phase", ["warmup", "profiled"])
def test_of_other_steps_a_loader_is_not_counted(phase: str) -> None:
    original = dataloader._BaseDataLoaderIter.__next__
    clock = StepClock(phase, device_events=False)
    clock.boundary()
    assert dataloader._BaseDataLoaderIter.__next__ is original
    clock.boundary()
    assert clock.read()[0].loader_ns is None


def test_a_clock_that_is_given_up_leaves_the_loader_alone() -> None:
    original = dataloader._BaseDataLoaderIter.__next__
    timed = StepClock("timed", device_events=False)
    timed.boundary()
    assert dataloader._BaseDataLoaderIter.__next__ is not original
    timed.stop()
    assert dataloader._BaseDataLoaderIter.__next__ is original


def test_a_loader_that_is_imported_amid_timed_steps_was_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules["torch.utils.data.dataloader"]
    monkeypatch.delitem(sys.modules, "torch.utils.data.dataloader")
    timed = StepClock("timed", device_events=False)
    timed.boundary()
    timed.boundary()
    monkeypatch.setitem(sys.modules, "torch.utils.data.dataloader", module)
    timed.boundary()
    assert [step.loader_ns for step in timed.read()] == [0, None]
