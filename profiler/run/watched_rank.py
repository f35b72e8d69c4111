"""How the process of a rank ended, seen by the process that stores for it.

A process that is killed says nothing any more, and only its parent is told why it ended. But until
the parent has asked, Linux keeps its exit status for whoever looks (proc(5), /proc/pid/stat). That
may be a moment only, so a thread waits for it.
"""

import os
import select
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpuprof.profiler.run.rank_marks import Death, RankMarks

# Of proc(5)'s fields behind the name, the state is the first and the exit status the fiftieth.
_EXIT_STATUS: Final = 49
_ENDED: Final = ("Z", "X")


class WatchedRank:
    """A running process, and where the other ranks look for it."""

    def __init__(self, marks: RankMarks, process: int) -> None:
        self._marks = marks
        self._process = process
        self._death = Death()
        # Readable once the process has ended; None where the system has none.
        self.descriptor: int | None = None
        self._thread: threading.Thread | None = None
        with suppress(AttributeError, OSError):
            self.descriptor = os.pidfd_open(process)
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def begin(self) -> None:
        """Say that the rank works here; where that fails, so will the capture."""
        with suppress(OSError):
            self._marks.begin()

    def write_death(self) -> None:
        """Say how the process ended, once it has."""
        if self._thread is not None:
            self._thread.join()
        with suppress(OSError):
            self._marks.write_death(self._death)

    def _watch(self) -> None:
        assert self.descriptor is not None
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        poll.poll()
        self._death = death_of(self._process)


def death_of(process: int) -> Death:
    """How a process ended that nobody has waited for yet; unknown where somebody has."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        # Its parent was quicker.
        return Death()
    fields = stat.rpartition(")")[2].split()
    if fields[0] not in _ENDED:
        return Death()
    code = os.waitstatus_to_exitcode(int(fields[_EXIT_STATUS]))
    return Death(exit_code=code) if code >= 0 else Death(signal=-code)
