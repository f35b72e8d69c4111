"""Profiles a program from its start until its first step is complete, in case no more comes."""

import threading
from collections.abc import Callable
from pathlib import Path

from gpuprof.collectors.live.torch_trace import TorchTrace
from gpuprof.profiler.run.main_thread import call_on_main_thread

# A script that never steps is watched no longer than this, so that memory stays bounded.
FIRST_LOOK_SECONDS = 20.0


class FirstLook:
    """The first look; begins with `start`, ends with `stop` or when its time is over."""

    def __init__(self, path: Path, *, time_is_over: Callable[[], None]) -> None:
        """`time_is_over` is called on the main thread, if the first look began there."""
        self.running = False
        self._time_is_over = time_is_over
        self._trace = TorchTrace(path, steps=None)
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """Begin to profile the calling thread."""
        self._trace.start()
        self.running = True
        if threading.current_thread() is threading.main_thread():
            self._timer = threading.Timer(
                FIRST_LOOK_SECONDS, call_on_main_thread, [self._time_is_over]
            )
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> bool:
        """End it, if it runs and on the thread that began it; whether it ended here and now."""
        if not self.running or not self._trace.can_stop_here:
            return False
        self.running = False
        self._trace.stop()
        if self._timer is not None:
            self._timer.cancel()
        return True

    def export(self) -> Path | None:
        """The trace as a file; None where it could not be ended."""
        return None if self.running else self._trace.export()
