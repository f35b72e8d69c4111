"""How long threads were ready to run and others had their core: Linux's scheduler keeps count."""

import os
import weakref
from contextlib import suppress

# run time, run delay, time slices: Documentation/scheduler/sched-stats.rst
_FILE = "/proc/thread-self/schedstat"
_LONGEST = 64
_THREADS = "/proc/self/task"


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


def process_run_delay_ns(threads: str = _THREADS) -> int | None:
    """Nanoseconds so far that threads of this process waited for a core, all of them together.

    None where the kernel keeps no count. A wait counts once it has ended.
    """
    delays_ns = []
    try:
        for thread in os.listdir(threads):
            # A thread may end meanwhile.
            with suppress(FileNotFoundError, ProcessLookupError):
                delays_ns.append(_delay_ns(f"{threads}/{thread}/schedstat"))
    except (OSError, IndexError, ValueError):
        return None
    return sum(delays_ns) if delays_ns else None


def _delay_ns(file: str) -> int:
    with open(file, "rb") as counts:
        return int(counts.read(_LONGEST).split()[1])
