"""How long steps take after the profiled ones: one cheap mark a step, in bounded memory.

A mark is a reading of the host's clock, less than a microsecond. A host that runs ahead marks steps
long before the device does them, so on a GPU a CUDA event goes with each mark that is kept. There
are never more than `_MOST_MARKS`: then every second one is dropped, and from there on fewer taken.
"""

import time
from dataclasses import dataclass
from itertools import pairwise

from gpuprof.collectors.live.cuda import StreamMoment
from gpuprof.collectors.manifest import LaterSteps

_MOST_MARKS = 65


@dataclass(frozen=True)
class _Mark:
    host_ns: int
    on_device: StreamMoment | None


class LaterStepsClock:
    """Counts steps and keeps the ends of blocks of equally many."""

    def __init__(self, *, device_events: bool) -> None:
        self._device_events = device_events
        self._block_steps = 1
        self._marks: list[_Mark] = []

    def mark(self) -> int:
        """A step ended and the next begins now; returns after how many steps to mark again."""
        moment = StreamMoment() if self._device_events else None
        self._marks.append(_Mark(time.perf_counter_ns(), moment))
        if len(self._marks) == _MOST_MARKS:
            self._marks = self._marks[::2]
            self._block_steps *= 2
        return self._block_steps

    def read(self) -> LaterSteps | None:
        """What was seen in whole blocks; None where no step ended. Waits for the device."""
        if len(self._marks) < 2:
            return None
        on_device = self._device_lengths()
        by_host = [after.host_ns - before.host_ns for before, after in pairwise(self._marks)]
        return LaterSteps(
            block_steps=self._block_steps,
            on_device=on_device is not None,
            blocks_ns=tuple(on_device or by_host),
        )

    def _device_lengths(self) -> list[int] | None:
        """By the device's clock; None without one, or where the device has failed."""
        moments = [mark.on_device for mark in self._marks if mark.on_device is not None]
        if len(moments) < 2:
            return None
        try:
            moments[-1].wait()
            return [before.ns_until(after) for before, after in pairwise(moments)]
        except RuntimeError:
            return None
