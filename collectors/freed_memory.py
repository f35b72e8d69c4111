"""Gives memory that was freed back to the system.

The C library keeps what numpy and a decoder freed for those who ask next. polars asks another
allocator: beside it the kept memory counts twice.
"""

import ctypes
import sys
from functools import cache
from typing import Any


def give_back() -> None:
    """Give back what the C library keeps, where it is one that can: glibc."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
