"""Memory that the C library keeps for later, given back to the system.

A profile allocates some hundred bytes for each of its events, in C++ and all over the heap. When
they are freed glibc keeps their pages: a program of 3,000 operators a step had 220 MB more than by
itself for as long as it ran. What a decoder of traces and numpy freed is kept alike, and polars
asks another allocator: beside it the kept memory counts twice.
"""

import ctypes
from contextlib import suppress


def give_back() -> None:
    """Whole free pages go to the system; what the program has itself freed is among them.

    malloc_trim(3) is glibc's. Where there is another C library nothing happens.
    """
    with suppress(AttributeError, OSError, TypeError):
        # Windows has no library of None.
        ctypes.CDLL(None).malloc_trim(0)
