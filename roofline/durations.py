"""Times inside the sentences of an analysis."""

from decimal import Decimal


def milliseconds(nanoseconds: float) -> str:
    """ "1606 ms": to four significant digits, and never with an exponent."""
    return f"{_significant(nanoseconds / 1e6, 4)} ms"


def microseconds(nanoseconds: float) -> str:
    """ "0.278 us": to three significant digits, and never with an exponent."""
    return f"{_significant(nanoseconds / 1e3, 3)} us"


def _significant(value: float, digits: int) -> str:
    return format(Decimal(f"{value:.{digits}g}"), "f")
