"""The timed steps: those that came after a GPU's clock had settled, or the last there were."""

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from typing import Final

from gpuprof.collectors.live import cuda
from gpuprof.collectors.manifest import Schedule
from gpuprof.collectors.steps.clock import StepClock
from gpuprof.collectors.steps.step_time import StepTime
from gpuprof.profiler.run.step_agreement import StepAgreement, is_meeting

# Cards differ in how they come down to their power limit, so a device has to be steady too, or to
# have worked this many times as long.
_LONGEST: Final = 3
# How often it is looked at meanwhile.
_LOOKS: Final = 4
_STEADY: Final = 0.01
# Each has a CUDA event until the last of them.
_MOST_TIMED: Final = 2000


class TimedSteps:
    """Times steps in batches and tells those apart that a settling device did.

    It settles under load, so what counts is how long the device took for the steps before, and
    whether the last of them took as long as those before.
    """

    def __init__(self, schedule: Schedule, agreement: StepAgreement | None = None) -> None:
        """With `agreement` they count from a boundary at which the devices of all ranks have."""
        self._schedule = schedule
        self._agreement = agreement
        self._agreed = False
        # Of the batch that is under way.
        self._clock: StepClock | None = None
        self._unsettled: list[StepTime] = []
        self._settled: list[StepTime] = []
        self._worked_ns = 0
        self._next_look_ns = schedule.settling_ns
        # Asked at every step.
        self._missing = self._now_missing()

    def start(self) -> None:
        """Time from the next boundary on; a batch that is under way is dropped."""
        self.stop()
        self._clock = StepClock("timed", device_events=cuda.in_use())

    def stop(self) -> None:
        """Time no longer, and leave the program as it was."""
        if self._clock is not None:
            self._clock.stop()
            self._clock = None

    def begin_again(self) -> None:
        """Time others, from the next boundary on: the program has only now warmed up."""
        self._unsettled += self._settled
        self._settled = []
        self._missing = self._now_missing()
        self._agreed = False
        self.start()

    def boundary(self, tokens: int | None, number: int) -> bool:
        """Note that one step ends here and the next begins; whether all have been timed.

        `number` of boundaries so far is the same on all ranks.
        """
        assert self._clock is not None
        self._clock.boundary(tokens)
        if self._agreement is not None and self._is_meeting_needed():
            if not is_meeting(number):
                return False
            self._take_batch()
            self._agreed = self._agreement.all_ready(number, not self._is_settling())
        elif self._clock.steps < self._missing:
            return False
        else:
            self._take_batch()
        if self._missing <= 0:
            return True
        self.start()
        self._clock.boundary(tokens)
        return False

    def _take_batch(self) -> None:
        if self._clock is not None:
            steps, self._clock = self._clock.read(), None
            self.take(steps)

    def missing(self) -> int:
        """How many more are to be timed, by what those so far took."""
        return self._missing

    def take(self, steps: Iterable[StepTime]) -> None:
        """Add `steps`, which follow those taken before."""
        for step in steps:
            if step.device_ns is not None and not self._settled and self._counts_later():
                self._unsettled.append(step)
                self._worked_ns += step.device_ns
            else:
                self._settled.append(step)
        self._missing = self._now_missing()

    def _now_missing(self) -> int:
        missing = self._schedule.timed - len(self._settled)
        on_device = [step.device_ns for step in self._settled if step.device_ns]
        left_ns = self._schedule.least_timed_ns - sum(on_device)
        if missing > 0 or not on_device or left_ns <= 0:
            return missing
        more = math.ceil(left_ns * len(on_device) / sum(on_device))
        return min(more, _MOST_TIMED - len(self._settled))

    def read(self) -> list[StepTime]:
        """Those not read yet, the early ones as warm-up; a batch under way as far as it got.

        Where the script ended before the device had settled, the last ones count as timed.
        """
        self._take_batch()
        timed = self._settled or self._unsettled[-self._schedule.timed :]
        early = self._unsettled if self._settled else self._unsettled[: -len(timed) or None]
        self._settled, self._unsettled = [], []
        return [*(replace(step, phase="warmup") for step in early), *timed]

    def _is_meeting_needed(self) -> bool:
        # A CPU does not settle.
        return not self._agreed and self._schedule.settling_ns > 0 and cuda.in_use()

    def _counts_later(self) -> bool:
        return self._is_settling() if self._agreement is None else self._is_meeting_needed()

    def _is_settling(self) -> bool:
        if self._worked_ns < self._next_look_ns:
            return True
        settling_ns = self._schedule.settling_ns
        if self._worked_ns >= _LONGEST * settling_ns or self._is_steady():
            return False
        self._next_look_ns += max(1, settling_ns // _LOOKS)
        return True

    def _is_steady(self) -> bool:
        """Whether the steps of the last half of the settling time took as long as those before."""
        halves: tuple[list[int], list[int]] = ([], [])
        taken_ns = 0
        for step in reversed(self._unsettled):
            if taken_ns >= self._schedule.settling_ns:
                break
            later = taken_ns < self._schedule.settling_ns // 2
            halves[0 if later else 1].append(step.device_ns or 0)
            taken_ns += step.device_ns or 0
        if not all(halves):
            return True
        last_ns, before_ns = (median(half) for half in halves)
        return abs(last_ns - before_ns) <= _STEADY * before_ns
