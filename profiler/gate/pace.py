"""How long the processes of a gate take, what is left of them, and when its time is over."""

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic


class Pace:
    """The wall time of one gate, which begins now."""

    def __init__(self, limit_s: float | None = None) -> None:
        """`limit_s` is what the measuring may take; None for as long as it takes."""
        self._limit_s = limit_s
        self._start_s = monotonic()
        # By target, of every process with what is done around it.
        self._process_s: dict[str, list[float]] = {}

    @property
    def elapsed_s(self) -> float:
        """Since the gate began to measure."""
        return monotonic() - self._start_s

    @contextmanager
    def timing(self, target: str) -> Iterator[None]:
        """Count what is done in this context as a process of `target`."""
        start_s = monotonic()
        yield
        self._process_s.setdefault(target, []).append(monotonic() - start_s)

    def process_s(self, target: str) -> float | None:
        """What a process of `target` takes, by those so far; None before any of any target."""
        every = [seconds for own in self._process_s.values() for seconds in own]
        own = self._process_s.get(target, every)
        return statistics.median(own) if own else None

    def left_s(self, processes: Mapping[str, int]) -> float | None:
        """What so many `processes` of each target take; None before any process ended."""
        total_s = 0.0
        for target, count in processes.items():
            process_s = self.process_s(target)
            if process_s is None:
                return None
            total_s += count * process_s
        return total_s

    def has_time_for(self, target: str, processes: int) -> bool:
        """Whether so many more processes of `target` end within the limit."""
        if self._limit_s is None:
            return True
        return self.elapsed_s + processes * (self.process_s(target) or 0.0) <= self._limit_s
