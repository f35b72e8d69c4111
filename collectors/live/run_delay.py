"""How long this thread was ready to run and others had its core: Linux's scheduler keeps count."""

import os
import weakref

# run time, run delay, time slices: Documentation/scheduler/sched-stats.rst
_FILE = "/proc/thread-self/schedstat"
_LONGEST = 64


class RunDelay:
    """The run delay of the thread that makes this, since it started.

    A reading takes a microsecond. Where the kernel keeps no count, readings are None.
    """

    def __init__(self) -> None:
        try:
            self._file: int | None = os.open(_FILE, os.O_RDONLY)
        except OSError:
            self._file = None
        else:
            weakref.finalize(self, os.close, self._file)

    def read_ns(self) -> int | None:
        """Nanoseconds so far."""
        if self._file is None:
            return None
        try:
            return int(os.pread(self._file, _LONGEST, 0).split()[1])
        except (OSError, IndexError, ValueError):
            # The program may close every descriptor it finds, and open others under their numbers.
            return None
