"""Numbers for objects that may be gone by the time they are asked for."""

from itertools import count
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class Numbered(Generic[T]):
    """Gives each object a number of its own without keeping it alive.

    An id alone would do only while the object lives: the next one may get it.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[ref[T], int]] = {}
        self._numbers = count()

    def key(self, item: T) -> int:
        """The number of `item`."""
        known = self._known.get(id(item))
        if known is None or known[0]() is not item:
            known = self._known[id(item)] = (ref(item), next(self._numbers))
        return known[1]

    def knows(self, item: T) -> bool:
        """Whether `item` has a number."""
        known = self._known.get(id(item))
        return known is not None and known[0]() is item

    def find(self, key: int) -> T:
        """The living object with the number `key`."""
        found = (item() for item, number in self._known.values() if number == key)
        return next(item for item in found if item is not None)
