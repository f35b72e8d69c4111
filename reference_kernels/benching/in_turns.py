"""Times several calls in turns, so that what changes meanwhile changes all of them alike.

A host or a clock that drifts by some per cent within seconds would otherwise make the call that is
timed last faster or slower than the first.
"""

import time
from collections.abc import Sequence
from functools import partial

from gpuprof.reference_kernels.benching.coordination import Alone
from gpuprof.reference_kernels.benching.statistics import median_of
from gpuprof.reference_kernels.benching.timing import (
    FIRST_BATCH,
    LARGEST_BATCH,
    MAXIMUM_SAMPLES,
    PRECISION,
    Clock,
    Sample,
    Timing,
    affordable,
    head_start,
    warm_up,
)
from gpuprof.reference_kernels.suite import Prepared


def time_in_turns(calls: Sequence[Prepared], clock: Clock, *, budget_s: float) -> list[Timing]:
    """Warm up, then time batches of each of `calls` in turns, every second round backwards.

    Each goes on until its median is within `PRECISION`, or `budget_s` are spent on it; at least
    ten calls of each are timed.
    """
    alone = Alone()
    turns: list[_Turn] = []
    for prepared in calls:
        warm = warm_up(prepared, clock, alone, budget_s=budget_s)
        turns.append(_Turn(prepared, clock, head_start(warm, alone), budget_s))
    waiting = list(turns)
    while waiting:
        for turn in waiting:
            turn.take()
        waiting = [turn for turn in reversed(waiting) if not turn.done]
    return [turn.timing() for turn in turns]


class _Turn:
    def __init__(
        self, prepared: Prepared, clock: Clock, head_start_ns: int, budget_s: float
    ) -> None:
        self._prepared = prepared
        self._clock = clock
        self._head_start_ns = head_start_ns
        self._left_s = budget_s
        self._batch = FIRST_BATCH
        self._samples: list[Sample] = []
        self.done = False

    def take(self) -> None:
        """Time one batch."""
        begun = time.perf_counter()
        line_up = partial(Alone().line_up, self._head_start_ns)
        new = self._clock.sample(self._prepared, line_up, self._batch)
        now = time.perf_counter()
        self._left_s -= now - begun
        self._samples += new
        spent = self._left_s <= 0 or len(self._samples) >= MAXIMUM_SAMPLES
        self.done = spent or self.timing().precise
        batch = min(2 * self._batch, LARGEST_BATCH)
        self._batch = affordable(batch, new, now + self._left_s)

    def timing(self) -> Timing:
        """What was timed so far."""
        times_ns = tuple(sample.time_ns for sample in self._samples)
        median = median_of(times_ns)
        precise = median.is_within(PRECISION)
        return Timing(tuple(self._samples), times_ns, median, precise, self._head_start_ns)
