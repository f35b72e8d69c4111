"""How long steps take after the profiled ones: one mark of the host's clock a step.

A mark costs less than a microsecond and holds no device event. The host may run ahead of the
device by what it can queue, so single marks say little; blocks of many steps do, and are all that
is kept: when there are too many, neighbours are joined.
"""

import time

from gpuprof.collectors.manifest import LaterSteps

_MOST_BLOCKS = 64


class LaterStepsClock:
    """Counts marks and keeps the lengths of blocks of steps, never more than `_MOST_BLOCKS`."""

    def __init__(self) -> None:
        self._block_steps = 1
        self._blocks_ns: list[int] = []
        self._in_block = 0
        # The start of the block under way.
        self._begun_ns: int | None = None

    def mark(self) -> None:
        """A step ended and the next begins now."""
        now_ns = time.perf_counter_ns()
        if self._begun_ns is None:
            self._begun_ns = now_ns
            return
        self._in_block += 1
        if self._in_block < self._block_steps:
            return
        self._blocks_ns.append(now_ns - self._begun_ns)
        self._begun_ns, self._in_block = now_ns, 0
        if len(self._blocks_ns) == _MOST_BLOCKS:
            pairs = zip(self._blocks_ns[::2], self._blocks_ns[1::2], strict=True)
            self._blocks_ns = [first + second for first, second in pairs]
            self._block_steps *= 2

    def read(self) -> LaterSteps | None:
        """What was seen in whole blocks; None where no step ended."""
        if not self._blocks_ns:
            return None
        return LaterSteps(block_steps=self._block_steps, blocks_ns=tuple(self._blocks_ns))
