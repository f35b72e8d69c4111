"""Has Kineto detach CUPTI after a profile, and waits until that is done.

Kineto does so where TEARDOWN_CUPTI is 1: a thread of its own waits until some CUDA call of the
process returns, and that call detaches CUPTI. A process that makes none until it ends hangs in
`exit`, and one whose last call is made while it ends may crash (torch 2.11, H200: one bench in
five). So a call is made as soon as the profile has ended.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuprof.collectors.live import cuda

_VARIABLE = "TEARDOWN_CUPTI"
_TASKS = Path("/proc/self/task")
_PAUSE_S = 0.0005
# Detaching takes some milliseconds. A thread that began beside it is not waited for longer.
_LONGEST_S = 1.0

# Whether the variable stands in the environment by `ask`.
_asked = False


def ask() -> None:
    """Ask for it before a profile begins, where the program has not decided itself.

    Without this, CUPTI stays attached after a profile with a schedule, and every later launch of
    the script pays: 400 small kernels took 7.5 ms instead of 5.0 (H200, torch 2.11).
    """
    global _asked
    if _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = "1"
        _asked = True


@contextmanager
def awaited() -> Iterator[None]:
    """A profile is stopped in this context, and CUPTI detached at its end.

    The program's own profiles end as they would without this one. torch takes the wish back where
    inductor replays CUDA graphs.
    """
    global _asked
    before = _tasks()
    try:
        yield
        if os.environ.get(_VARIABLE) == "1" and cuda.in_use():
            wait_for(_tasks() - before, cuda.current_device)
    finally:
        if _asked and os.environ.get(_VARIABLE) == "1":
            del os.environ[_VARIABLE]
        _asked = False


def wait_for(threads: frozenset[str], call: Callable[[], object]) -> None:
    """Make `call` until all of `threads` have ended, for a second at most."""
    latest = time.monotonic() + _LONGEST_S
    while threads & _tasks() and time.monotonic() < latest:
        call()
        time.sleep(_PAUSE_S)


def _tasks() -> frozenset[str]:
    """The ids of this process's threads; none where the system does not tell."""
    try:
        return frozenset(os.listdir(_TASKS))
    except OSError:
        return frozenset()
