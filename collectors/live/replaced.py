"""Functions of torch's classes, replaced for a while."""

from collections.abc import Callable
from typing import Any


def replace(owner: Any, **functions: Callable[..., Any]) -> Callable[[], None]:
    """Put `functions` in place of the attributes of `owner` with their names.

    Returns what puts the former ones back. Whoever put its own in place of ours meanwhile goes on
    calling ours.
    """
    before = {name: getattr(owner, name) for name in functions}
    for name, function in functions.items():
        setattr(owner, name, function)

    def undo() -> None:
        for name, function in functions.items():
            if getattr(owner, name) is function:
                setattr(owner, name, before[name])

    return undo
