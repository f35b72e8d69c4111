"""Whether both sides of a gate ran with the same lock of the GPU's clock."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof.roofline.gate.suite import MeasuredProcess

# Fewer may agree by chance.
_FEWEST_PROCESSES = 3
# Clocks step by 15 MHz with temperature. What is closer changes no time that the gate would show.
_APART = 1.01


@dataclass(frozen=True)
class _Clock:
    """What all processes of a side tell of the SM clock."""

    mhz: int
    held: bool

    def __str__(self) -> str:
        return f"held at {self.mhz} MHz" if self.held else f"not held, {self.mhz} MHz"


def clock_locks_that_differ(processes: Sequence[MeasuredProcess]) -> tuple[str, ...]:
    """What the clocks of one target's `processes` say against comparing its two sides.

    One side was held at a clock, and the other was held at a higher one or reached it. A lower
    clock that nobody held is none of that: the code may have brought it, by drawing more power.
    """
    base, head = (_clock([p for p in processes if p.side == side]) for side in ("A", "B"))
    if base is None or head is None:
        return ()
    low, high = sorted((base, head), key=lambda clock: clock.mhz)
    if not low.held or high.mhz < low.mhz * _APART:
        return ()
    return (f"SM clock: {base} against {head}",)


def _clock(processes: Sequence[MeasuredProcess]) -> _Clock | None:
    """The clock of one side, the lowest of those not held; None where its processes disagree."""
    told = [
        (measured.held_sm_clock_mhz, measured.sm_clock_mhz)
        for process in processes
        for measured in process.measurements.values()
        if measured.sm_clock_mhz is not None
    ]
    held = {each for each, _ in told}
    if len(processes) < _FEWEST_PROCESSES or len(held) != 1:
        return None
    return _Clock(min(mhz for _, mhz in told if mhz is not None), held != {None})
