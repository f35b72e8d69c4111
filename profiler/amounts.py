"""Amounts as people type them on a command line: 7B, 989.4T, 9ms, 45%."""

import argparse
from decimal import Decimal, InvalidOperation

_PREFIXES = {"k": 3, "K": 3, "M": 6, "G": 9, "B": 9, "T": 12, "P": 15}
_SECONDS = {"ns": -9, "us": -6, "µs": -6, "ms": -3, "s": 0}


def whole(text: str) -> int:
    """A whole number above 0: "8030261248", "7B", "6.74e9"."""
    value = _scaled(text)
    if value != value.to_integral_value():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number")
    return int(value)


def amount(text: str) -> float:
    """A number above 0: "989.4T", "3.35e12", "8000"."""
    return float(_scaled(text))


def seconds(text: str) -> float:
    """A time above 0, in seconds unless it ends in ms, us or ns."""
    stripped = text.strip()
    # The longest unit first: ms ends in s too.
    for unit in sorted(_SECONDS, key=len, reverse=True):
        if stripped.endswith(unit):
            return float(_number(stripped.removesuffix(unit), text).scaleb(_SECONDS[unit]))
    return float(_number(stripped, text))


def share(text: str) -> float:
    """A share above 0 and at most 1: "45%", "0.45"."""
    stripped = text.strip()
    percent = stripped.endswith("%")
    value = float(_number(stripped.removesuffix("%"), text)) / (100 if percent else 1)
    if value > 1:
        raise argparse.ArgumentTypeError(f"'{text}' is more than 100%")
    return value


def wholes(text: str) -> tuple[int, ...]:
    """Whole numbers above 0, apart by commas: "1,2,4"."""
    return tuple(whole(part) for part in text.split(","))


def _scaled(text: str) -> Decimal:
    stripped = text.strip()
    exponent = _PREFIXES.get(stripped[-1:], 0)
    return _number(stripped[:-1] if exponent else stripped, text).scaleb(exponent)


def _number(digits: str, text: str) -> Decimal:
    try:
        value = Decimal(digits.strip())
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"'{text}' is no amount such as 7B or 9ms") from None
    if not value.is_finite() or value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not above 0")
    return value
