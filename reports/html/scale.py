"""A linear axis in per cent of its length, for drawings that need no script."""

import math
from dataclasses import dataclass

# At most about this many ticks.
_TICKS = 5


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Where `value` lies, in per cent of the axis."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    def ticks(self) -> tuple[float, ...]:
        """Round values inside the axis: multiples of 1, 2 or 5 and a power of ten."""
        rough = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return tuple(round(number * step, 12) for number in range(first, last + 1))


def scale_of(*values: float) -> Scale:
    """An axis with a little room around all of `values`."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or max(abs(high), 1.0) * 0.06
    return Scale(low - room, high + room)
