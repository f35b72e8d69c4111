"""The timed steps: those that came after a GPU's clock had settled, or the last there were."""

from collections.abc import Iterable
from dataclasses import replace

from gpuprof.collectors.manifest import Schedule
from gpuprof.collectors.steps.step_time import StepTime


class TimedSteps:
    """Takes timed steps in batches and tells those apart that a settling device did.

    It settles under load, so what counts is how long the device took for the steps before.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._unsettled: list[StepTime] = []
        self._settled: list[StepTime] = []

    def missing(self) -> int:
        """How many more are to be timed."""
        return self._schedule.timed - len(self._settled)

    def take(self, steps: Iterable[StepTime]) -> None:
        """Add `steps`, which follow those taken before."""
        worked_ns = sum(step.device_ns or 0 for step in self._unsettled)
        for step in steps:
            settling = worked_ns < self._schedule.settling_ns
            if settling and step.device_ns is not None and not self._settled:
                self._unsettled.append(step)
                worked_ns += step.device_ns
            else:
                self._settled.append(step)

    def read(self) -> list[StepTime]:
        """All that were taken, the early ones as warm-up.

        Where the script ended before the device had settled, the last ones count as timed.
        """
        timed = self._settled or self._unsettled[-self._schedule.timed :]
        early = self._unsettled if self._settled else self._unsettled[: -len(timed) or None]
        return [*(replace(step, phase="warmup") for step in early), *timed]
