"""The objects of some kinds that are alive in this process."""

import gc
from collections.abc import Sequence
from typing import Any


def live_objects(*kinds: type[Any], among: Sequence[Any] | None = None) -> list[Any]:
    """Every tracked object whose type is one of `kinds` or derived from it.

    By type: isinstance would ask each object for its __class__, and module proxies answer that with
    imports and warnings. A program has some hundred thousand objects, and going through them takes
    tens of milliseconds in which it does not step: who looks for several kinds looks once for all,
    then `among` what that found.
    """
    types: set[type[Any]] = set()
    waiting: list[type[Any]] = [*kinds]
    while waiting:
        found = waiting.pop()
        if found not in types:
            types.add(found)
            waiting += type.__subclasses__(found)
    objects = gc.get_objects() if among is None else among
    return [found for found in objects if type(found) in types]
