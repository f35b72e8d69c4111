"""What a block of a trace is read into, and decoded from without a copy."""

from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class Elements:
    """Whole elements of an array with commas between them: the first bytes of `buffer`."""

    buffer: bytes | bytearray
    length: int

    def array(self) -> bytes:
        """They as a JSON array, which is a copy."""
        return b"".join((b"[", memoryview(self.buffer)[: self.length], b"]"))


class Buffers:
    """Buffers of one size, used again: their pages are there, and nothing is zeroed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """A buffer of `size` bytes, with anything in it; of another size a new one."""
        if size != self._size:
            return bytearray(size)
        # Another thread may take the last one meanwhile.
        with suppress(IndexError):
            return self._free.pop()
        return bytearray(size)

    def give_back(self, buffer: bytes | bytearray) -> None:
        """Let the next `take` have `buffer`, of which nothing is needed any more."""
        if isinstance(buffer, bytearray) and len(buffer) == self._size:
            self._free.append(buffer)
