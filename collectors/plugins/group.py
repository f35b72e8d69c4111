"""One group of entry points, and what of it can be used."""

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from gpuprof.collectors.errors import reason
from gpuprof.collectors.plugins.discovery import Installed, installed
from gpuprof.collectors.plugins.origin import PluginOrigin
from gpuprof.collectors.plugins.problems import problem_with

T = TypeVar("T")


@dataclass(frozen=True)
class Plugin(Generic[T]):
    """One thing that a plug-in adds."""

    origin: PluginOrigin
    value: T


@dataclass(frozen=True)
class PluginGroup(Generic[T]):
    """What the entry points of one group are: one of `kinds`, or a tuple or list of such."""

    # As pyproject.toml names it: "gpuprof.readers".
    name: str
    # One of them, for people: "reader".
    adds: str
    kinds: tuple[type[T], ...]
    # The names that one of them is known by, which no other may have.
    claims: Callable[[T], Iterable[str]]
    # The names that ours have.
    ours: Callable[[], Collection[str]]
    # What else is wrong with one of them; "" for nothing.
    fault: Callable[[T], str] = lambda value: ""

    @property
    def expected(self) -> str:
        """What an entry point has to be, in words."""
        kinds = " or ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in self.kinds)
        return f"expected {kinds}, or a tuple of them"

    def load(self) -> tuple[Plugin[T], ...]:
        """All that can be used, in order of precedence. They are imported the first time."""
        with LOADING:
            if self.name not in _loaded:
                # What asks again while a plug-in is imported gets none.
                _loaded[self.name] = ()
                _loaded[self.name] = self._load()
            return _loaded[self.name]

    def _load(self) -> tuple[Plugin[T], ...]:
        found: list[Plugin[T]] = []
        holders: dict[str, str] = dict.fromkeys(self.ours(), "gpuprof")
        for one in installed(self.name):
            for value in self._values(one):
                problem = self._problem(value, holders)
                if problem:
                    problem_with(one.origin, f"{problem}; it is left out")
                    continue
                holders.update(dict.fromkeys(self.claims(value), one.origin.distribution))
                found.append(Plugin(one.origin, value))
        return tuple(found)

    def _values(self, one: Installed) -> Iterable[Any]:
        value = one.load()
        if value is None:
            return ()
        return value if isinstance(value, tuple | list) else (value,)

    def _problem(self, value: Any, holders: dict[str, str]) -> str:
        if not isinstance(value, self.kinds):
            return f"{_described(value)}, {self.expected}"
        try:
            taken = next((name for name in self.claims(value) if name in holders), None)
            if taken is not None:
                return f"{taken!r} is already a {self.adds} of {holders[taken]}"
            return self.fault(value)
        # Of the right type, with fields of any other.
        except Exception as error:
            return f"a {self.adds} that is not complete: {type(error).__name__}: {reason(error)}"


# Held while plug-ins are loaded: no other thread may take a group for empty meanwhile.
LOADING: Final = threading.RLock()
# What was found, by the name of the group.
_loaded: dict[str, tuple[Plugin[Any], ...]] = {}


def _described(value: object) -> str:
    """ "a function", "a module", "an int"."""
    name = value.__qualname__ if isinstance(value, type) else type(value).__name__
    what = f"the class {name}" if isinstance(value, type) else name
    if isinstance(value, type):
        return what
    return f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
