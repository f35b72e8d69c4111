"""Which steps take longer than the last ones did."""

import math
from collections import deque
from typing import Final

# The steps that one is compared with, and how many there must be.
_WINDOW: Final = 256
LEAST: Final = 64
# The P95 is worked out again after so many steps.
_EVERY: Final = 32
_QUANTILE: Final = 0.95


class SlowStepDetector:
    """Compares each step with the P95 (nearest rank) of up to 256 before it."""

    def __init__(self, times: float) -> None:
        """A step is slow that takes over `times` the P95."""
        self._times = times
        self.begin_again()

    def begin_again(self) -> None:
        """Forget the steps so far."""
        self._lengths_ns: deque[int] = deque(maxlen=_WINDOW)
        self._new = 0
        self.p95_ns: int | None = None

    def is_slow(self, length_ns: int) -> bool:
        """Whether the next step, which took so long, is. False until enough are known."""
        slow = self.p95_ns is not None and length_ns > self._times * self.p95_ns
        self._lengths_ns.append(length_ns)
        self._new += 1
        if self._new >= _EVERY and len(self._lengths_ns) >= LEAST:
            self._new = 0
            ranked = sorted(self._lengths_ns)
            self.p95_ns = ranked[math.ceil(_QUANTILE * len(ranked)) - 1]
        return slow
