"""What the line on the terminal shows of a running program, in memory that two processes share.

The program's side stores a few whole numbers, which takes a microsecond a step; the process that
draws the line looks at them whenever it likes. Each record has a version beside it, which is odd
while the record is written, so that a reader sees one as it was at one moment.
"""

import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpuprof.collectors.live.collector import LatestReading
from gpuprof.collectors.live.unix_clock import monotonic_ns

# Before those of a session come those of a program that has not imported torch.
PHASES: Final = (
    *("starting", "searching", "warmup", "timed", "profiled", "dropped"),
    *("later", "done", "storing"),
)
_WORD_BYTES: Final = 8
# Version and fields of each record.
_STEPS: Final = (0, 5)
_DEVICE: Final = (5, 4)
_FULL_SPEED: Final = (9, 2)
_WORDS: Final = 11
_UNKNOWN: Final = -1
# A writer that was stopped in the middle leaves the record odd.
_MOST_READS: Final = 100


@dataclass(frozen=True)
class LiveReading:
    """What was known of the program at one moment; None where nothing was."""

    phase: str
    # Since the first step of this program, and of this phase.
    steps: int
    steps_of_phase: int
    # When the last of them ended, by the monotonic clock.
    step_end_ns: int
    device: int | None = None
    sm_clock_mhz: int | None = None
    power_milliwatts: int | None = None
    # How long a step would take at an MFU of 100 %.
    full_speed_step_ns: int | None = None


class LiveState:
    """Both sides of the shared memory behind the open file `descriptor`."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Without `descriptor` new memory. Raises `OSError` where there is none."""
        if descriptor is None:
            with tempfile.TemporaryFile() as file:
                file.truncate(_WORDS * _WORD_BYTES)
                descriptor = os.dup(file.fileno())
        self.descriptor = descriptor
        self._words = memoryview(mmap.mmap(descriptor, _WORDS * _WORD_BYTES)).cast("q")
        self._phase = PHASES[0]
        self._steps = self._steps_before = 0

    def close_descriptor(self) -> None:
        """The memory stays. Before the program runs, which may use the number again."""
        os.close(self.descriptor)

    def enter(self, phase: str) -> None:
        """`phase` of `PHASES` begins, and no step ends with that."""
        self.step(phase, self._steps)

    def step(self, phase: str, steps: int) -> None:
        """A step ended, the last of `steps`, and the next one belongs to `phase`."""
        if phase != self._phase:
            # The mark that ends the last step of one phase begins the next phase.
            self._phase, self._steps_before = phase, steps
        if phase == "warmup":
            # Counting begins with it, again where better marks of steps are found.
            self._steps_before = 0
        self._steps = steps
        number = PHASES.index(phase)
        self._write(_STEPS, (number, steps, steps - self._steps_before, monotonic_ns()))

    def sample(self, readings: Sequence[LatestReading]) -> None:
        """Of several devices the one that draws most power is shown."""
        busiest = max(readings, key=lambda reading: reading.power_milliwatts or 0)
        values = (busiest.device, busiest.sm_clock_mhz, busiest.power_milliwatts)
        known = (_UNKNOWN if value is None else round(value) for value in values)
        self._write(_DEVICE, tuple(known))

    def know_full_speed(self, step_ns: float) -> None:
        """At an MFU of 100 % a step would take `step_ns`."""
        self._write(_FULL_SPEED, (round(step_ns),))

    def read(self) -> LiveReading:
        """What is known now."""
        phase, steps, steps_of_phase, step_end_ns = self._read(_STEPS) or (0, 0, 0, 0)
        unknown = (_UNKNOWN,) * 3
        device, sm_clock, power = (_known(value) for value in self._read(_DEVICE) or unknown)
        full_speed = self._read(_FULL_SPEED)
        return LiveReading(
            PHASES[phase],
            steps,
            steps_of_phase,
            step_end_ns,
            device,
            sm_clock,
            power,
            full_speed[0] if full_speed else None,
        )

    def _write(self, place: tuple[int, int], values: tuple[int, ...]) -> None:
        first = place[0]
        self._words[first] += 1
        for index, value in enumerate(values):
            self._words[first + 1 + index] = value
        self._words[first] += 1

    def _read(self, place: tuple[int, int]) -> tuple[int, ...] | None:
        """The record as it was last written; None where it never was."""
        first, words = place
        for _ in range(_MOST_READS):
            version = self._words[first]
            values = tuple(self._words[first + 1 : first + words])
            if version % 2 == 0 and self._words[first] == version:
                return values if version else None
        return None


def _known(value: int) -> int | None:
    return None if value == _UNKNOWN else value
