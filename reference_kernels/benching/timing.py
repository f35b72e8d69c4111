"""Times calls one by one until their median is known well enough.

On a GPU each call stands between two CUDA events. Before the first of them, untimed, the L2 cache
is flushed: a buffer of four times its size is written and read again, so that the call finds
neither its data nor dirty lines of others, whose eviction would count to it. That work also gives
the host time to queue the call, so the device does not wait for it between the events.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gpuprof.collectors import cuda
from gpuprof.reference_kernels.benching.coordination import Coordination
from gpuprof.reference_kernels.benching.statistics import Median, median_of
from gpuprof.reference_kernels.suite import Prepared

PRECISION = 0.005
_FIRST_BATCH = 10
_LARGEST_BATCH = 200
_MAXIMUM_SAMPLES = 20_000
_WARMUP_SHARE = 0.2
_FLUSHED_L2_SIZES = 4
# Where the driver does not tell the size of the L2 cache: more than any GPU has.
_LARGEST_L2_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Sample:
    """One timed call. `host_ns`: what the host needed to start it, where that is another clock."""

    started_ns: int
    time_ns: int
    host_ns: int | None = None


@dataclass(frozen=True)
class Timing:
    """All timed calls of one version. `median` is over `times_ns`, one for each of `samples`."""

    samples: tuple[Sample, ...]
    times_ns: tuple[int, ...]
    median: Median
    precise: bool


class Clock(Protocol):
    """Times calls on one kind of device."""

    @property
    def name(self) -> str:
        """For people: "CUDA events"."""

    @property
    def flushed_bytes(self) -> int | None:
        """Bytes that `flush` writes and reads; None where it does nothing."""

    def sample(self, prepared: Prepared, line_up: Callable[[], None], count: int) -> list[Sample]:
        """Time `count` calls; before each, `line_up` waits for other ranks."""

    def flush(self) -> None:
        """Take what a call could find in the caches away from it."""


class HostClock:
    """The host's clock, for work on the CPU. Caches stay as the call before left them."""

    name = "host clock"
    flushed_bytes = None

    def sample(self, prepared: Prepared, line_up: Callable[[], None], count: int) -> list[Sample]:
        """See `Clock`."""
        samples = []
        for _ in range(count):
            _before(prepared)
            line_up()
            started_ns, start = time.time_ns(), time.perf_counter_ns()
            prepared.call()
            passed = time.perf_counter_ns() - start
            samples.append(Sample(started_ns, passed))
        return samples

    def flush(self) -> None:
        """See `Clock`: nothing, the last cache of a server's CPU is too large."""


class EventClock:
    """CUDA events on the current stream of the current device, with the L2 cache flushed."""

    name = "CUDA events"

    def __init__(self, l2_cache_bytes: int | None) -> None:
        self.flushed_bytes = _FLUSHED_L2_SIZES * (l2_cache_bytes or _LARGEST_L2_BYTES)
        self._buffer = torch.empty(self.flushed_bytes // 4, dtype=torch.float32, device="cuda")
        self._largest = torch.empty((), dtype=torch.float32, device="cuda")

    def sample(self, prepared: Prepared, line_up: Callable[[], None], count: int) -> list[Sample]:
        """See `Clock`."""
        make_event: Callable[..., Any] = torch.cuda.Event
        events = []
        hosts = []
        for _ in range(count):
            start, end = make_event(enable_timing=True), make_event(enable_timing=True)
            _before(prepared)
            self.flush()
            line_up()
            start.record()
            started_ns, host_start = time.time_ns(), time.perf_counter_ns()
            prepared.call()
            hosts.append((started_ns, time.perf_counter_ns() - host_start))
            end.record()
            events.append((start, end))
        cuda.synchronize()
        # The driver answers in ms.
        return [
            Sample(started_ns, round(start.elapsed_time(end) * 1e6), host_ns)
            for (start, end), (started_ns, host_ns) in zip(events, hosts, strict=True)
        ]

    def flush(self) -> None:
        """Leave nothing in the L2 cache but clean lines of a buffer of our own."""
        self._buffer.zero_()
        torch.amax(self._buffer, dim=0, out=self._largest)


def time_calls(prepared: Prepared, clock: Clock, group: Coordination, *, budget_s: float) -> Timing:
    """Warm up, then time calls until the median is within `PRECISION`, or `budget_s` is spent.

    At least ten calls are timed. Of several ranks the slowest one's time counts, call by call.
    """
    deadline = time.perf_counter() + budget_s * _WARMUP_SHARE
    batch = 1
    while group.agree(int(time.perf_counter() < deadline)):
        clock.sample(prepared, group.line_up, batch)
        batch = min(2 * batch, _FIRST_BATCH)
    samples: list[Sample] = []
    times_ns: list[int] = []
    deadline = time.perf_counter() + budget_s
    batch = _FIRST_BATCH
    while True:
        new = clock.sample(prepared, group.line_up, batch)
        samples += new
        times_ns += [round(ns) for ns in group.largest([one.time_ns for one in new])]
        median = median_of(times_ns)
        precise = median.is_within(PRECISION)
        spent = time.perf_counter() > deadline or len(samples) >= _MAXIMUM_SAMPLES
        if group.agree(int(precise or spent)):
            return Timing(tuple(samples), tuple(times_ns), median, precise)
        batch = min(2 * batch, _LARGEST_BATCH)
        batch = group.agree(_affordable(batch, samples, deadline))


def _affordable(batch: int, samples: list[Sample], deadline: float) -> int:
    """`batch`, or the fewer calls that still fit before the deadline; at least one."""
    since = samples[-1].started_ns - samples[0].started_ns
    each_s = max(since / max(1, len(samples) - 1), samples[-1].time_ns) / 1e9
    left = (deadline - time.perf_counter()) / each_s if each_s else batch
    return max(1, min(batch, int(left)))


def _before(prepared: Prepared) -> None:
    if prepared.before is not None:
        prepared.before()
