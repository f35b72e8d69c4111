"""Unix time for what is compared with a trace, without the jumps of a clock that is set.

torch's traces are in Unix time, which an administrator or a time service may set at any moment.
A program may also replace the functions of `time`, as libraries that freeze it for tests do: what
`time` had when gpuprof was imported is kept out of their reach.
"""

import time
from collections.abc import Callable

# What the clock gains or loses while a time service steers it lies far below, for seconds.
_JUMP_NS = 1_000_000
_Read = Callable[[], int]


def unix_ns(*, _read: _Read = time.time_ns) -> int:
    """Nanoseconds since the Unix epoch."""
    return _read()


def monotonic_ns(*, _read: _Read = time.perf_counter_ns) -> int:
    """Nanoseconds of a clock that nobody can set, since some moment."""
    return _read()


class UnixClock:
    """Unix time as it was when this was made, continued by the monotonic clock."""

    def __init__(self) -> None:
        self._offset_ns = _offset_ns()

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self.at_ns(monotonic_ns())

    def at_ns(self, monotonic: int) -> int:
        """The Unix time of a moment on the monotonic clock."""
        return monotonic + self._offset_ns

    def set_by_ns(self) -> int:
        """By how much the system's clock was set since, negative for back; 0 where it was not."""
        change_ns = _offset_ns() - self._offset_ns
        return change_ns if abs(change_ns) > _JUMP_NS else 0


def _offset_ns() -> int:
    """From the monotonic clock to Unix time, as the quickest of a few readings has it."""
    readings = []
    for _ in range(5):
        before_ns = monotonic_ns()
        unix = unix_ns()
        after_ns = monotonic_ns()
        readings.append((after_ns - before_ns, unix - (before_ns + after_ns) // 2))
    return min(readings)[1]
