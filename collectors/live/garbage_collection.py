"""How long Python's garbage collector held the program, by its own callbacks.

A callback stays from `install` to `remove`. It costs 0.5 us a collection, of which Python makes one
for about 700 objects that it keeps (docs/run.md).
"""

import gc
import threading
from collections.abc import Callable
from typing import Final

from gpuprof.collectors.host_events import GarbageCollection, range_row
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.live.unix_clock import monotonic_ns, unix_ns
from gpuprof.collectors.manifest import CollectedGeneration

# A profile that holds more collections keeps the first.
_MOST_ROWS: Final = 100_000
_GENERATIONS: Final = 3


class _Collector:
    """What has been counted, and the callback that counts."""

    def __init__(self) -> None:
        self.counts = [0] * _GENERATIONS
        self.paused_ns = [0] * _GENERATIONS
        # While a profile runs: generation, objects collected, thread, start and end of each.
        self.recorded: list[tuple[int, int, int, int, int]] | None = None
        self.callback = self._make_callback()

    def _make_callback(self) -> Callable[[str, dict[str, int]], None]:
        # A closure: attributes would make it take twice as long.
        counts, paused, clock = self.counts, self.paused_ns, monotonic_ns
        started_ns: int | None = None

        def callback(phase: str, info: dict[str, int]) -> None:
            nonlocal started_ns
            # One collection at a time in a process; a callback may be put in amid one.
            if phase == "start":
                started_ns = clock()
            elif started_ns is not None:
                duration_ns = clock() - started_ns
                started_ns = None
                generation = info["generation"]
                counts[generation] += 1
                paused[generation] += duration_ns
                if self.recorded is not None:
                    self._record(generation, info["collected"], duration_ns)

        return callback

    def _record(self, generation: int, found: int, duration_ns: int) -> None:
        if self.recorded is not None and len(self.recorded) < _MOST_ROWS:
            end_ns = unix_ns()
            thread = threading.get_native_id()
            self.recorded.append((generation, found, thread, end_ns - duration_ns, end_ns))


_collector: _Collector | None = None


def install() -> None:
    """Begin to count."""
    global _collector
    if _collector is None:
        _collector = _Collector()
        gc.callbacks.append(_collector.callback)


def remove() -> None:
    """Count no more, and forget."""
    global _collector
    if _collector is not None and _collector.callback in gc.callbacks:
        gc.callbacks.remove(_collector.callback)
    _collector = None


def paused_ns() -> int | None:
    """Nanoseconds that collections took since `install`; None where nothing counts."""
    return None if _collector is None else sum(_collector.paused_ns)


def collected() -> tuple[CollectedGeneration, ...]:
    """What was counted, by generation; nothing where nothing counts."""
    if _collector is None:
        return ()
    return tuple(
        CollectedGeneration(collections=count, paused_ns=ns)
        for count, ns in zip(_collector.counts, _collector.paused_ns, strict=True)
    )


class Collections:
    """A `ProfileRecorder` of each collection."""

    subject = "garbage collections"

    def start(self) -> None:
        """See `ProfileRecorder`."""
        if _collector is not None:
            _collector.recorded = []

    def stop(self) -> Rows:
        """See `ProfileRecorder`."""
        if _collector is None or _collector.recorded is None:
            return {}
        recorded, _collector.recorded = _collector.recorded, None
        return {
            "ranges": [
                range_row(
                    GarbageCollection(generation=generation, collected=found),
                    thread=thread,
                    start_ns=start_ns,
                    end_ns=end_ns,
                )
                for generation, found, thread, start_ns, end_ns in recorded
            ]
        }
