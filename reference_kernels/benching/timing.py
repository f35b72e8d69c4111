"""Times calls one by one until their median is known well enough.

On a GPU each call stands between two CUDA events. Before the first of them, untimed, the L2 cache
is flushed: a buffer of four times its size is written and read again, so that the call finds
neither its data nor dirty lines of others, whose eviction would count to it. The stream is then
held until the host, of several ranks the slowest one's, has queued the call: a small kernel would
otherwise take as long as its launch, a small collective as long as the hosts' launches lie apart.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from gpuprof.collectors.live import cuda
from gpuprof.collectors.manifest import GPU_SETTLING_NS
from gpuprof.reference_kernels.benching.coordination import Coordination
from gpuprof.reference_kernels.benching.statistics import Median, median_of
from gpuprof.reference_kernels.suite import Prepared

PRECISION = 0.005
FIRST_BATCH = 10
LARGEST_BATCH = 200
MAXIMUM_SAMPLES = 20_000
_WARMUP_SHARE = 0.2
# Of the seconds for single calls; and as long before, for the clock to fall.
_SUSTAINED_SHARE = 0.3
# What the host of a rank does between the word to line up and the call, at most; and more than any
# call should need to be queued.
_LINING_UP_NS = 100_000
_LONGEST_HEAD_START_NS = 5_000_000
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
    # For how long the device was held before each call.
    head_start_ns: int = 0


@dataclass(frozen=True)
class BackToBack:
    """What a call took in a row of `calls`, each begun as the one before ended."""

    call_ns: int
    calls: int
    started_ns: int
    ended_ns: int


class Clock(Protocol):
    """Times calls on one kind of device."""

    @property
    def name(self) -> str:
        """For people: "CUDA events"."""

    @property
    def flushed_bytes(self) -> int | None:
        """Bytes that `flush` writes and reads; None where it does nothing."""

    @property
    def settling_s(self) -> float:
        """How long the device has to be busy before its clock is steady."""

    def sample(self, prepared: Prepared, line_up: Callable[[], None], count: int) -> list[Sample]:
        """Time `count` calls; before each, `line_up` waits for other ranks."""

    def sustain(self, prepared: Prepared, single: Timing, budget_s: float) -> BackToBack | None:
        """Time calls back to back at the clock that holds; None where `sample` does no less.

        `single`: what single calls took. Caches stay as the call before left them.
        """

    def flush(self) -> None:
        """Take what a call could find in the caches away from it."""


class HostClock:
    """The host's clock, for work on the CPU. Caches stay as the call before left them."""

    name = "host clock"
    flushed_bytes = None
    settling_s = 0.0

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

    def sustain(self, prepared: Prepared, single: Timing, budget_s: float) -> None:
        """See `Clock`: `sample` calls back to back already."""

    def flush(self) -> None:
        """See `Clock`: nothing, the last cache of a server's CPU is too large."""


class EventClock:
    """CUDA events on the current stream of the current device, with the L2 cache flushed."""

    name = "CUDA events"
    settling_s = GPU_SETTLING_NS / 1e9

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

    def sustain(self, prepared: Prepared, single: Timing, budget_s: float) -> BackToBack | None:
        """See `Clock`. None too where the host sets the pace, or has to restore the inputs."""
        hosts_ns = sorted(one.host_ns or 0 for one in single.samples)
        call_ns = max(1, single.median.value)
        if prepared.before is not None or hosts_ns[len(hosts_ns) // 2] > call_ns:
            return None
        for_s = max(budget_s * _SUSTAINED_SHARE, self.settling_s)
        calls = min(max(FIRST_BATCH, round(for_s * 1e9 / call_ns)), MAXIMUM_SAMPLES)
        make_event: Callable[..., Any] = torch.cuda.Event
        start, end = make_event(enable_timing=True), make_event(enable_timing=True)
        # As many before them, in which the clock falls to what the power limit allows.
        for _ in range(calls):
            prepared.call()
        started_ns = time.time_ns()
        start.record()
        for _ in range(calls):
            prepared.call()
        end.record()
        cuda.synchronize()
        total_ns = start.elapsed_time(end) * 1e6
        return BackToBack(round(total_ns / calls), calls, started_ns, time.time_ns())

    def flush(self) -> None:
        """Leave nothing in the L2 cache but clean lines of a buffer of our own."""
        self._buffer.zero_()
        torch.amax(self._buffer, dim=0, out=self._largest)


def time_calls(prepared: Prepared, clock: Clock, group: Coordination, *, budget_s: float) -> Timing:
    """Warm up, then time calls until the median is within `PRECISION`, or `budget_s` is spent.

    At least ten calls are timed. Of several ranks the slowest one's time counts, call by call.
    """
    head_start_ns = head_start(warm_up(prepared, clock, group, budget_s=budget_s), group)
    line_up = partial(group.line_up, head_start_ns)
    samples: list[Sample] = []
    times_ns: list[int] = []
    deadline = time.perf_counter() + budget_s
    batch = FIRST_BATCH
    while True:
        new = clock.sample(prepared, line_up, batch)
        samples += new
        times_ns += [round(ns) for ns in group.largest([one.time_ns for one in new])]
        median = median_of(times_ns)
        precise = median.is_within(PRECISION)
        spent = time.perf_counter() > deadline or len(samples) >= MAXIMUM_SAMPLES
        if group.agree(int(precise or spent)):
            return Timing(tuple(samples), tuple(times_ns), median, precise, head_start_ns)
        batch = min(2 * batch, LARGEST_BATCH)
        batch = group.agree(affordable(batch, samples, deadline))


def warm_up(
    prepared: Prepared, clock: Clock, group: Coordination, *, budget_s: float
) -> list[Sample]:
    """Call for a share of `budget_s`, and until the device's clock is steady; the last calls."""
    deadline = time.perf_counter() + max(budget_s * _WARMUP_SHARE, clock.settling_s)
    batch = 1
    warm: list[Sample] = []
    while group.agree(int(time.perf_counter() < deadline)):
        warm = clock.sample(prepared, partial(group.line_up, 0), batch)
        batch = min(2 * batch, FIRST_BATCH)
    return warm


def head_start(warm: list[Sample], group: Coordination) -> int:
    """For how long to hold a device, in ns: until the slowest rank's host has queued a call.

    From the last calls of the warm-up. 0 where the host's clock times the calls.
    """
    (slowest,) = group.largest([float(max((one.host_ns or 0 for one in warm), default=0))])
    lining_up_ns = 0 if group.ranks == 1 else _LINING_UP_NS
    return min(lining_up_ns + round(slowest), _LONGEST_HEAD_START_NS)


def affordable(batch: int, samples: list[Sample], deadline: float) -> int:
    """`batch`, or the fewer calls that still fit before the deadline; at least one."""
    since = samples[-1].started_ns - samples[0].started_ns
    each_s = max(since / max(1, len(samples) - 1), samples[-1].time_ns) / 1e9
    left = (deadline - time.perf_counter()) / each_s if each_s else batch
    return max(1, min(batch, int(left)))


def _before(prepared: Prepared) -> None:
    if prepared.before is not None:
        prepared.before()
