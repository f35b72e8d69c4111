"""`gpuprof run --watch`: every step in bounded memory, at a cost that is limited."""

import random

import msgspec
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, dataloader

from gpuprof.collectors.live.loader_time import LoaderTime
from gpuprof.collectors.steps import watched
from gpuprof.collectors.steps.bounded_statistics import ACCURACY, LengthHistogram, UniformSample
from gpuprof.collectors.steps.watched import WatchedStepsClock
from gpuprof.collectors.watched_steps import WatchedSteps
from gpuprof.roofline.length_distribution import quantile


class Clocks:
    """The host's clock, what the thread ran, and a device that does each step some time later."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000
        self.ran_ns = 0
        # Of the thread, by each mark.
        self.mark_ns = 0
        self.device_ns = 0
        self.reached_ns = 10**18

    def monotonic_ns(self) -> int:
        return self.now_ns

    def thread_time_ns(self) -> int:
        self.ran_ns += self.mark_ns
        return self.ran_ns


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    found = Clocks()

    class Moment:
        def __init__(self) -> None:
            self.at_ns = found.device_ns

        def wait(self) -> None:
            found.reached_ns = max(found.reached_ns, self.at_ns)

        def is_reached(self) -> bool:
            return self.at_ns <= found.reached_ns

        def ns_until(self, later: "Moment") -> int:
            assert later.is_reached()
            return later.at_ns - self.at_ns

    monkeypatch.setattr(watched, "monotonic_ns", found.monotonic_ns)
    monkeypatch.setattr(watched, "_thread_time_ns", found.thread_time_ns)
    monkeypatch.setattr(watched, "StreamMoment", Moment)
    return found


def watched_lengths(clocks: Clocks, lengths: list[int]) -> WatchedSteps:
    marks = WatchedStepsClock(device_events=False)
    until_due = marks.mark()
    for length in lengths:
        clocks.now_ns += length
        until_due = until_due - 1 or marks.mark()
    found = marks.read()
    assert found is not None
    return found


def random_lengths(count: int) -> list[int]:
    """Log-normal around 10 ms, with a stall of some 100 ms now and then."""
    numbers = random.Random(7)
    return [
        round(numbers.lognormvariate(16.1, 0.1)) + (numbers.random() < 0.002) * 10**8
        for _ in range(count)
    ]


def test_a_long_run_is_kept_in_as_much_memory_as_a_short_one(clocks: Clocks) -> None:
    lengths = random_lengths(100_000)
    found = watched_lengths(clocks, lengths)
    assert found.steps_per_mark == 1
    assert (found.marked, found.total_ns) == (len(lengths), sum(lengths))
    assert len(msgspec.json.encode(found)) < 1.2 * len(
        msgspec.json.encode(watched_lengths(clocks, lengths[:10_000]))
    )
    # The slowest are the true ones, and the time line loses nothing.
    assert [step.host_ns for step in found.slowest] == sorted(lengths, reverse=True)[:32]
    assert all(lengths[step.index] == step.host_ns for step in found.slowest)
    assert sum(block.total_ns for block in found.time_line) == sum(lengths)
    assert max(block.longest_ns for block in found.time_line) == max(lengths)
    assert [block.index for block in found.time_line] == [
        sum(block.marked for block in found.time_line[:number])
        for number in range(len(found.time_line))
    ]
    for fraction in (0.01, 0.5, 0.95, 0.99, 0.999):
        true = float(np.percentile(lengths, 100 * fraction))
        assert quantile(found.histogram, fraction) == pytest.approx(true, rel=2 * ACCURACY)
    assert all(lengths[step.index] == step.host_ns for step in found.sample)
    assert len({step.index for step in found.sample}) == 128


@pytest.mark.parametrize("value", [1, 2, 3, 999, 10**6, 10**12])
def test_a_bucket_lies_within_the_accuracy_of_what_it_holds(value: int) -> None:
    histogram = LengthHistogram()
    histogram.add(value)
    ((middle, count),) = histogram.read()
    assert count == 1
    assert middle == pytest.approx(value, rel=ACCURACY, abs=0.5)


def test_each_value_has_the_same_chance_to_be_in_the_sample() -> None:
    # Samples of many sizes together: early, middle and late values alike.
    positions: list[int] = []
    for size in range(5, 45):
        sample: UniformSample[int] = UniformSample(size)
        for number in range(400):
            if sample.takes_next():
                sample.keep(number)
        assert len(set(sample.kept)) == size
        positions += sample.kept
    quarters = np.histogram(positions, bins=4, range=(0, 400))[0] / len(positions)
    assert quarters == pytest.approx([0.25] * 4, abs=0.06)


def test_steps_on_a_device_that_is_behind_have_its_times(clocks: Clocks) -> None:
    marks = WatchedStepsClock(device_events=True)
    clocks.reached_ns = 0
    marks.mark()
    for number in range(50):
        # The host queues a step in 5 us, the device takes a millisecond and more.
        clocks.now_ns += 5_000
        clocks.device_ns += 1_000_000 + number
        marks.mark()
    found = marks.read()
    assert found is not None
    assert found.on_device
    assert found.unknown == 0
    assert found.total_ns == sum(1_000_000 + number for number in range(50))
    assert [step.index for step in found.slowest[:2]] == [49, 48]
    slowest = found.slowest[0]
    assert (slowest.host_ns, slowest.device_ns) == (5_000, 1_000_049)
    first = min(found.sample, key=lambda step: step.index)
    assert first.device_start_ns == first.start_ns
    assert slowest.device_start_ns == first.start_ns + found.total_ns - 1_000_049


def test_a_device_that_fails_leaves_the_steps_before(clocks: Clocks) -> None:
    marks = WatchedStepsClock(device_events=True)
    marks.mark()
    for _ in range(4):
        clocks.now_ns += 10
        clocks.device_ns += 100
        marks.mark()
    clocks.reached_ns = 400
    clocks.device_ns += 100
    marks.mark()

    def fail() -> None:
        raise RuntimeError("CUDA error")

    marks._pending[0].end.on_device.wait = fail  # type: ignore[union-attr, method-assign]
    found = marks.read()
    assert found is not None
    assert (found.marked, found.total_ns) == (4, 400)


def test_where_marks_cost_too_much_steps_share_one(clocks: Clocks) -> None:
    clocks.mark_ns = 10_000
    found = watched_lengths(clocks, [100_000] * 5000)
    # A tenth of each step with a mark a step.
    assert found.mark_ns == 10_000
    assert found.steps_per_mark == 16
    assert found.marked == (5000 - 63) // 16
    assert found.slowest[0].host_ns == 100_000
    assert found.mark_ns / (100_000 * found.steps_per_mark) < 0.01


def test_without_a_whole_step_nothing_was_seen(clocks: Clocks) -> None:
    marks = WatchedStepsClock(device_events=False)
    assert marks.read() is None
    marks.mark()
    assert marks.read() is None


def test_next_of_a_loader_is_counted_and_given_back() -> None:
    original = dataloader._BaseDataLoaderIter.__next__
    counted = LoaderTime()
    counted.start()
    loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=2)
    assert [batch[0].tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    loading_ns = counted.nanoseconds
    assert loading_ns > 0
    counted.stop()
    assert dataloader._BaseDataLoaderIter.__next__ is original
    list(loader)
    assert counted.nanoseconds == loading_ns


def test_a_program_s_own_next_of_a_loader_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = LoaderTime()
    monkeypatch.setattr(
        dataloader._BaseDataLoaderIter, "__next__", dataloader._BaseDataLoaderIter.__next__
    )
    counted.start()
    own = object()
    monkeypatch.setattr(dataloader._BaseDataLoaderIter, "__next__", own)
    counted.stop()
    assert dataloader._BaseDataLoaderIter.__next__ is own
