"""Something done every so often beside the program, from a thread of its own."""

import os
import threading
from collections.abc import Callable
from typing import Final

from gpuprof.collectors.errors import reason

SLOW_INTERVAL_NS: Final = 1_000_000_000
_JOIN_SECONDS: Final = 5.0


class PeriodicThread:
    """Calls `tick` every `interval_ns` from a daemon thread, between `start` and `stop`.

    A process forked from this one has no such thread. A tick that raises is the last one.
    """

    def __init__(self, tick: Callable[[], None], *, name: str, interval_ns: int) -> None:
        self.interval_ns = interval_ns
        # What went wrong, in words; "" where nothing did.
        self.problem = ""
        self._tick = tick
        self._name = name
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._process: int | None = None

    @property
    def running(self) -> bool:
        """Between `start` and `stop`, and in the process that started it."""
        return self._thread is not None and self._process == os.getpid()

    def start(self) -> None:
        """Begin; the first tick comes after one interval."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._thread, self._process = thread, os.getpid()

    def slow_down(self) -> None:
        """From now on once a second, or as rarely as before."""
        self.interval_ns = max(self.interval_ns, SLOW_INTERVAL_NS)

    def stop(self) -> bool:
        """End the thread. False where there is none to end, or where its tick does not return."""
        # In the child of a fork the event's lock may have been held when it was made.
        if not self.running or self._thread is None:
            return False
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        ended = not self._thread.is_alive()
        self._thread = None
        if not ended:
            self.problem = f"did not answer within {_JOIN_SECONDS:.0f} s at the end"
        return ended

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self.interval_ns / 1e9):
                self._tick()
        except Exception as error:
            self.problem = f"stopped early: {reason(error)}"
