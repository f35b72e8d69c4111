"""Steps of a run of any length in bounded memory.

Kept are how lengths are spread, the slowest steps in full, a uniform sample of all, and a time line
that gets coarser. This runs at every step of a program, so what is kept in full is written out at
the end: at first all steps are among the slowest and in the sample, and a look at what marks cost
saw twice their cost.
"""

import heapq
from collections.abc import Callable
from operator import itemgetter
from typing import Final

from gpuprof.collectors.steps.bounded_statistics import ACCURACY, LengthHistogram, UniformSample
from gpuprof.collectors.watched_steps import StepBlock, WatchedStep, WatchedSteps

_SLOWEST: Final = 32
_SAMPLE: Final = 128
_MOST_BLOCKS: Final = 512

# Makes a step of what was read, given when the device reached it.
WriteOut = Callable[[int | None], WatchedStep]
# A step's number, and what writes it out and is given.
_Kept = tuple[int, WriteOut, int | None]


class KeptSteps:
    """Takes steps in the order of the run. `on_device`: their lengths are the device's."""

    def __init__(self, *, on_device: bool) -> None:
        self._on_device = on_device
        self._histogram = LengthHistogram()
        self._sample: UniformSample[_Kept] = UniformSample(_SAMPLE)
        # The index decides between equally long ones: steps cannot be compared.
        self._slowest: list[tuple[int, int, _Kept]] = []
        self._blocks: list[_Block] = []
        self._marked_in_a_block = 1
        self._marked = 0
        self._total_ns = 0
        self._unknown = 0
        # When the device reaches the step that is added next.
        self._reached_ns: int | None = None

    def add(self, index: int, begun_ns: int, length_ns: int | None, write_out: WriteOut) -> None:
        """Step number `index`, whose beginning the host marked at `begun_ns` on the Unix clock."""
        if length_ns is None:
            self._unknown += 1
            self._reached_ns = None
            return
        device_ns = self._advance(begun_ns, length_ns) if self._on_device else None
        self._marked += 1
        self._total_ns += length_ns
        self._histogram.add(length_ns)
        if self._sample.takes_next():
            self._sample.keep((index, write_out, device_ns))
        if len(self._slowest) < _SLOWEST:
            heapq.heappush(self._slowest, (length_ns, -index, (index, write_out, device_ns)))
        elif length_ns > self._slowest[0][0]:
            heapq.heapreplace(self._slowest, (length_ns, -index, (index, write_out, device_ns)))
        self._add_to_time_line(index, begun_ns, device_ns, length_ns)

    def _advance(self, begun_ns: int, length_ns: int) -> int:
        """When the device reached a step, and from there the next one.

        It was idle when the watch began, and from one step to the next there is no gap.
        """
        reached_ns = begun_ns if self._reached_ns is None else self._reached_ns
        self._reached_ns = reached_ns + length_ns
        return reached_ns

    def _add_to_time_line(
        self, index: int, begun_ns: int, device_ns: int | None, length_ns: int
    ) -> None:
        if self._blocks and self._blocks[-1].marked < self._marked_in_a_block:
            self._blocks[-1].add(1, length_ns, length_ns)
            return
        if len(self._blocks) == _MOST_BLOCKS:
            for first, second in zip(self._blocks[::2], self._blocks[1::2], strict=True):
                first.add(second.marked, second.total_ns, second.longest_ns)
            self._blocks = self._blocks[::2]
            self._marked_in_a_block *= 2
        self._blocks.append(_Block(index, begun_ns, device_ns, length_ns))

    def read(self, *, steps_per_mark: int, mark_ns: int) -> WatchedSteps | None:
        """All that is kept; None where nothing was added."""
        if not self._marked:
            return None
        return WatchedSteps(
            on_device=self._on_device,
            steps_per_mark=steps_per_mark,
            marked=self._marked,
            total_ns=self._total_ns,
            unknown=self._unknown,
            histogram=self._histogram.read(),
            accuracy=ACCURACY,
            slowest=tuple(_written_out(kept) for _, _, kept in sorted(self._slowest, reverse=True)),
            sample=tuple(map(_written_out, sorted(self._sample.kept, key=itemgetter(0)))),
            time_line=tuple(block.read() for block in self._blocks),
            mark_ns=mark_ns,
        )


def _written_out(kept: _Kept) -> WatchedStep:
    _, write_out, device_ns = kept
    return write_out(device_ns)


class _Block:
    def __init__(self, index: int, begun_ns: int, device_ns: int | None, length_ns: int) -> None:
        self._index = index
        self._begun_ns = begun_ns
        self._device_ns = device_ns
        self.marked = 1
        self.total_ns = length_ns
        self.longest_ns = length_ns

    def add(self, marked: int, total_ns: int, longest_ns: int) -> None:
        """The steps that follow."""
        self.marked += marked
        self.total_ns += total_ns
        self.longest_ns = max(self.longest_ns, longest_ns)

    def read(self) -> StepBlock:
        """As it is stored."""
        return StepBlock(
            index=self._index,
            start_ns=self._begun_ns,
            device_start_ns=self._device_ns,
            marked=self.marked,
            total_ns=self.total_ns,
            longest_ns=self.longest_ns,
        )
