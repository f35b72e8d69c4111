"""Medians with their intervals, and when timing stops."""

import math
import random
import time
from collections.abc import Callable, Sequence

import pytest
import torch

from gpuprof.collectors.live import cuda
from gpuprof.reference_kernels.benching.coordination import Alone
from gpuprof.reference_kernels.benching.in_turns import time_in_turns
from gpuprof.reference_kernels.benching.statistics import Median, median_of
from gpuprof.reference_kernels.benching.timing import (
    EventClock,
    HostClock,
    Sample,
    Timing,
    time_calls,
)
from gpuprof.reference_kernels.suite import Prepared


class ScriptedClock:
    """Gives the times of a list, over and over."""

    name = "scripted"
    flushed_bytes = None
    settling_s = 0.0

    def __init__(self, times_ns: list[int], host_ns: int | None = None) -> None:
        self.times_ns = times_ns
        self.host_ns = host_ns
        self.given = 0

    def sample(self, prepared: Prepared, line_up: Callable[[], None], count: int) -> list[Sample]:
        taken = [self.times_ns[(self.given + i) % len(self.times_ns)] for i in range(count)]
        self.given += count
        return [Sample(0, ns, self.host_ns) for ns in taken]

    def flush(self) -> None:
        pass


class LinedUpClock(ScriptedClock):
    """Lines up before each batch."""

    def sample(self, prepared: Prepared, line_up: Callable[[], None], count: int) -> list[Sample]:
        line_up()
        return super().sample(prepared, line_up, count)


def test_the_interval_of_ten_samples_runs_from_the_second_to_the_ninth() -> None:
    # P(fewer than 2 of 10 below the median) = 11/1024 = 1.1 %; fewer than 3 would be 5.5 %.
    found = median_of([10, 20, 30, 40, 50, 60, 70, 80, 90, 100])
    assert (found.value, found.lower, found.upper) == (55, 20, 90)
    assert found.relative_spread == pytest.approx((77.5 - 32.5) / 55)


@pytest.mark.parametrize(("count", "known"), [(1, False), (5, False), (6, True)])
def test_five_samples_are_too_few_for_an_interval(count: int, known: bool) -> None:
    # All of n samples lie on one side with probability 2^-n: 3.1 % for 5, 1.6 % for 6.
    assert (median_of([7] * count).lower is not None) is known


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    drawn = random.Random(0)
    held = 0
    for _ in range(1000):
        found = median_of([round(drawn.expovariate(1) * 1e6) for _ in range(40)])
        assert found.lower is not None
        assert found.upper is not None
        held += found.lower <= math.log(2) * 1e6 <= found.upper
    assert 940 <= held <= 985


def test_the_interval_of_many_samples_agrees_with_the_normal_limit() -> None:
    found = median_of(list(range(1, 10_001)))
    # n/2 - 1.96 sqrt(n)/2
    assert found.lower == pytest.approx(5000 - 98, abs=2)


def test_steady_calls_need_only_the_first_batch() -> None:
    timing = time_calls(Prepared(lambda: None, ()), ScriptedClock([1000]), Alone(), budget_s=5)
    assert len(timing.times_ns) == 10
    assert timing.precise
    assert timing.median.value == 1000


def test_noisy_calls_are_repeated_until_the_median_is_known() -> None:
    drawn = random.Random(1)
    times_ns = [round(drawn.gauss(1000, 20)) for _ in range(5000)]
    timing = time_calls(Prepared(lambda: None, ()), ScriptedClock(times_ns), Alone(), budget_s=30)
    assert timing.precise
    assert len(timing.times_ns) > 10
    assert timing.median.is_within(0.005)


def test_what_never_settles_stops_with_the_budget_and_says_so() -> None:
    timing = time_calls(
        Prepared(lambda: None, ()), ScriptedClock([1000, 2000]), Alone(), budget_s=0.05
    )
    assert not timing.precise
    assert len(timing.times_ns) >= 10


def test_the_input_is_put_in_place_before_each_call_and_not_timed() -> None:
    order: list[str] = []
    prepared = Prepared(lambda: order.append("call"), (), before=lambda: order.append("before"))
    samples = HostClock().sample(prepared, lambda: order.append("line up"), 2)
    assert order == ["before", "line up", "call"] * 2
    assert all(one.host_ns is None for one in samples)


def test_of_several_ranks_the_slowest_call_counts() -> None:
    class Slower(Alone):
        def largest(self, values: object) -> list[float]:
            return [float(value) * 3 for value in values]  # type: ignore[attr-defined]

    timing = time_calls(Prepared(lambda: None, ()), ScriptedClock([1000]), Slower(), budget_s=1)
    assert timing.median.value == 3000


def test_ranks_are_held_for_what_the_slowest_host_needs_to_queue_a_call() -> None:
    class Ranks(Alone):
        ranks = 2

        def __init__(self) -> None:
            self.head_starts: list[int] = []

        def largest(self, values: Sequence[float]) -> list[float]:
            return [float(value) * 3 for value in values]

        def line_up(self, head_start_ns: int) -> None:
            self.head_starts.append(head_start_ns)

    group = Ranks()
    timing = time_calls(Prepared(lambda: None, ()), LinedUpClock([1000], 1), group, budget_s=0.05)
    # Hosts of 1 ns and, elsewhere, 3 ns a call.
    assert timing.head_start_ns == 100_003
    assert group.head_starts[0] == 0
    assert group.head_starts[-1] == 100_003


@pytest.mark.parametrize("host_ns", [None, 40_000])
def test_a_device_is_held_for_what_its_host_needs_to_queue_a_call(
    host_ns: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    monkeypatch.setattr(cuda, "hold", held.append)

    clock = LinedUpClock([1000], host_ns)
    prepared = Prepared(lambda: None, ())
    timing = time_calls(prepared, clock, Alone(), budget_s=0.01)
    in_turns = time_in_turns([prepared, prepared], clock, budget_s=0.01)
    assert timing.head_start_ns == (host_ns or 0)
    # Once for each batch that counts; where the host's clock times the calls, never.
    assert set(held) == ({host_ns} if host_ns else set())
    assert len(held) >= 3 * bool(host_ns)
    assert [one.median.value for one in in_turns] == [1000, 1000]
    assert [one.head_start_ns for one in in_turns] == [host_ns or 0] * 2


class SimulatedGpu:
    """A device that works through calls in turn; `Event` takes its time when it gets there."""

    def __init__(self, *calls_ns: int) -> None:
        self.calls_ns = calls_ns
        self.now_ns = self.calls = 0

    def call(self) -> None:
        self.now_ns += self.calls_ns[min(self.calls, len(self.calls_ns) - 1)]
        self.calls += 1

    def event(self, *, enable_timing: bool) -> "SimulatedEvent":
        assert enable_timing
        return SimulatedEvent(self)


class SimulatedEvent:
    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu = gpu

    def record(self) -> None:
        self.at_ns = self.gpu.now_ns

    def elapsed_time(self, later: "SimulatedEvent") -> float:
        return (later.at_ns - self.at_ns) / 1e6


def event_clock(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> EventClock:
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(cuda, "synchronize", lambda: None)
    return EventClock.__new__(EventClock)


def single(time_ns: int, host_ns: int) -> Timing:
    median = Median(time_ns, time_ns, time_ns, 0.0)
    return Timing((Sample(0, time_ns, host_ns),), (time_ns,), median, True)


def test_sustained_calls_are_timed_after_as_many_in_which_the_clock_falls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 0.3 s of 1 ms: 300 calls at full clock, then 20 % slower ones.
    gpu = SimulatedGpu(*[1_000_000] * 300, 1_200_000)
    clock = event_clock(gpu, monkeypatch)
    row = clock.sustain(Prepared(gpu.call, ()), single(1_000_000, 10_000), budget_s=1)
    assert row is not None
    assert (row.call_ns, row.calls, gpu.calls) == (1_200_000, 300, 600)


def test_calls_that_wait_for_the_host_are_not_sustained(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimulatedGpu(5_000)
    clock = event_clock(gpu, monkeypatch)
    assert clock.sustain(Prepared(gpu.call, ()), single(5_000, 9_000), budget_s=1) is None
    restored = Prepared(gpu.call, (), before=lambda: None)
    assert clock.sustain(restored, single(5_000, 1_000), budget_s=1) is None
    assert gpu.calls == 0


def test_calls_count_when_the_device_has_been_busy_for_as_long_as_its_clock_needs() -> None:
    class SettlingClock(ScriptedClock):
        settling_s = 0.2

        def sample(
            self, prepared: Prepared, line_up: Callable[[], None], count: int
        ) -> list[Sample]:
            now_ns = time.perf_counter_ns()
            return [Sample(now_ns, 1000) for _ in range(count)]

    start_ns = time.perf_counter_ns()
    timing = time_calls(Prepared(lambda: None, ()), SettlingClock([]), Alone(), budget_s=0.01)
    assert timing.samples[0].started_ns - start_ns >= 0.2e9
