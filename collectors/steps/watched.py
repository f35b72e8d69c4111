"""Watches every step after the profiled ones: `gpuprof run --watch`.

At each mark a few clocks are read and, on a GPU, one CUDA event is recorded. Events are read once
the device has reached them, so that no step waits.
"""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from gpuprof.collectors.live import garbage_collection
from gpuprof.collectors.live.cuda import StreamMoment
from gpuprof.collectors.live.loader_time import LoaderTime
from gpuprof.collectors.live.run_delay import RunDelay
from gpuprof.collectors.live.unix_clock import UnixClock, monotonic_ns
from gpuprof.collectors.steps.kept_steps import KeptSteps
from gpuprof.collectors.watched_steps import WatchedStep, WatchedSteps

# Steps that the device may be behind. The driver's queue holds fewer.
_MOST_PENDING: Final = 4096
# Of the steps' time. What is aimed at leaves room for what is not measured of a mark.
_MOST_COST: Final = 0.008
# Marks after which their cost is looked at, and until which.
_LOOK_EVERY: Final = 64
_LAST_LOOK: Final = 1024


def _thread_time_ns(*, _read: Callable[[], int] = time.thread_time_ns) -> int:
    """What the calling thread has run. As in `unix_clock`, out of the program's reach."""
    return _read()


class _Readings(NamedTuple):
    """What is read at a mark."""

    host_ns: int
    processor_ns: int
    run_delay_ns: int | None
    garbage_collection_ns: int | None
    loader_ns: int
    on_device: StreamMoment | None


class _Marked(NamedTuple):
    """The steps between two marks, of which `first` is the number of the first."""

    first: int
    begin: _Readings
    end: _Readings

    def device_ns(self) -> int | None:
        """Between the two marks on the device, which must have reached them."""
        begin, end = self.begin.on_device, self.end.on_device
        return None if begin is None or end is None else begin.ns_until(end)


class WatchedStepsClock:
    """Marks steps on the thread that makes it, from `start` to `stop`."""

    def __init__(self, *, device_events: bool) -> None:
        self._device_events = device_events
        self._unix = UnixClock()
        self._run_delay = RunDelay()
        self._loader_time = LoaderTime()
        self._steps_per_mark = 1
        self._begin_again(0)

    def _begin_again(self, index: int) -> None:
        """Keep nothing of the steps before number `index`."""
        self._index = index
        self._last: _Readings | None = None
        self._marks = 0
        self._marking_ns = 0
        self._first_ns = 0
        self._pending: deque[_Marked] = deque()
        self._kept = KeptSteps(on_device=self._device_events)

    def start(self) -> None:
        """Begin to count the time in loaders."""
        self._loader_time.start()

    def stop(self) -> None:
        """Leave the program as it was."""
        self._loader_time.stop()

    def mark(self) -> int:
        """A step ended and the next begins now; returns after how many steps to mark again."""
        now_ns = monotonic_ns()
        readings = self._read_clocks(now_ns)
        if self._last is None:
            self._first_ns = now_ns
        else:
            self._pending.append(_Marked(self._index, self._last, readings))
            self._index += self._steps_per_mark
        self._last = readings
        self._marks += 1
        self._drain(wait=False)
        # What the thread ran, without what others had the core for meanwhile.
        self._marking_ns += _thread_time_ns() - readings.processor_ns
        if self._marks % _LOOK_EVERY == 0 and self._marks <= _LAST_LOOK:
            self._limit_cost(now_ns)
        return self._steps_per_mark if self._last is not None else 1

    def _read_clocks(self, now_ns: int) -> _Readings:
        recorded = self._device_events and len(self._pending) < _MOST_PENDING
        return _Readings(
            host_ns=now_ns,
            processor_ns=_thread_time_ns(),
            run_delay_ns=self._run_delay.read_ns(),
            garbage_collection_ns=garbage_collection.paused_ns(),
            loader_ns=self._loader_time.nanoseconds,
            on_device=StreamMoment() if recorded else None,
        )

    def _limit_cost(self, now_ns: int) -> None:
        """Let more steps share a mark where marks cost too much of them, and begin again."""
        cost = self._marking_ns / max(1, now_ns - self._first_ns)
        if cost <= _MOST_COST:
            return
        while cost > _MOST_COST:
            self._steps_per_mark *= 2
            cost /= 2
        self._begin_again(self._index)

    def _drain(self, *, wait: bool) -> None:
        """Keep the steps that the device has done; with `wait` all of them."""
        while self._pending:
            end = self._pending[0].end.on_device
            if end is not None:
                if wait:
                    end.wait()
                elif not end.is_reached():
                    return
            self._keep(self._pending.popleft())

    def _keep(self, marked: _Marked) -> None:
        shared = self._steps_per_mark
        device_ns = marked.device_ns()
        host_ns = marked.end.host_ns - marked.begin.host_ns
        length_ns = device_ns if self._device_events else host_ns
        begun_ns = self._unix.at_ns(marked.begin.host_ns)
        self._kept.add(
            marked.first,
            begun_ns,
            None if length_ns is None else length_ns // shared,
            partial(_written_out, marked, begun_ns, device_ns, shared),
        )

    def read(self) -> WatchedSteps | None:
        """What was seen; None where no marked step ended. Waits for the device."""
        try:
            self._drain(wait=True)
        except RuntimeError:
            # A program that ends by an error of its device still has the steps before it.
            self._pending.clear()
        return self._kept.read(
            steps_per_mark=self._steps_per_mark,
            mark_ns=self._marking_ns // max(1, self._marks),
        )


def _written_out(
    marked: _Marked, begun_ns: int, device_ns: int | None, shared: int, reached_ns: int | None
) -> WatchedStep:
    """`marked` as it is stored: means for one of the `shared` steps."""
    begin, end = marked.begin, marked.end
    return WatchedStep(
        index=marked.first,
        start_ns=begun_ns,
        host_ns=(end.host_ns - begin.host_ns) // shared,
        device_ns=None if device_ns is None else device_ns // shared,
        device_start_ns=reached_ns,
        processor_ns=(end.processor_ns - begin.processor_ns) // shared,
        run_delay_ns=_each(begin.run_delay_ns, end.run_delay_ns, shared),
        garbage_collection_ns=_each(begin.garbage_collection_ns, end.garbage_collection_ns, shared),
        loader_ns=(end.loader_ns - begin.loader_ns) // shared,
    )


def _each(begin_ns: int | None, end_ns: int | None, shared: int) -> int | None:
    """What was counted in one of `shared` steps; None where nobody counted."""
    return None if begin_ns is None or end_ns is None else (end_ns - begin_ns) // shared
