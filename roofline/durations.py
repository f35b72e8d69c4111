"""Times inside the sentences of an analysis, never with an exponent."""

from decimal import Decimal
from typing import Final

_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))


def duration(nanoseconds: float, digits: int = 3) -> str:
    """A time in the unit that suits it: "1.61 s", "22.8 ms", "301 µs", "10 ns", and "0"."""
    if nanoseconds == 0:
        return "0"
    for length_ns, unit in _UNITS:
        if nanoseconds >= length_ns:
            return f"{_significant(nanoseconds / length_ns, digits)} {unit}"
    return f"{_significant(nanoseconds, digits)} ns"


def microseconds(nanoseconds: float) -> str:
    """ "0.278 µs", however many they are, so that two can be compared."""
    return f"{_significant(nanoseconds / 1e3, 3)} µs"


def _significant(value: float, digits: int) -> str:
    return format(Decimal(f"{value:.{digits}g}"), "f")
