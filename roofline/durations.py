"""Times inside the sentences of an analysis, never with an exponent."""

from decimal import Decimal


def duration(nanoseconds: float, digits: int = 3) -> str:
    """ "22.8 ms", from a second on "1.61 s", and "0"."""
    if nanoseconds == 0:
        return "0"
    if nanoseconds < 1e9:
        return f"{_significant(nanoseconds / 1e6, digits)} ms"
    return f"{_significant(nanoseconds / 1e9, digits)} s"


def microseconds(nanoseconds: float) -> str:
    """ "0.278 us", however many they are, so that two can be compared."""
    return f"{_significant(nanoseconds / 1e3, 3)} us"


def _significant(value: float, digits: int) -> str:
    return format(Decimal(f"{value:.{digits}g}"), "f")
