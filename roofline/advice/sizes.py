"""Bytes as people write them."""

from collections.abc import Mapping
from typing import Final

_UNITS: Final[Mapping[str, int]] = {"GB": 10**9, "MB": 10**6, "kB": 10**3}


def size_text(number: int) -> str:
    """ "4.19 MB", with three digits."""
    for unit, size in _UNITS.items():
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} B"
