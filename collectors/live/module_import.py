"""Tells when the program has imported a module, and leaves nothing behind that shows it.

What a program sets before that import (of torch: threads, allocators, compilers) counts as it does
under python, because nothing of ours imports the module earlier.
"""

import importlib.abc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


@contextmanager
def once_imported(name: str, then: Callable[[], None]) -> Iterator[None]:
    """Within this context, call `then` once: now if module `name` is there, else as soon as it is.

    It runs on the importing thread, before the import statement ends. What it raises is raised
    there. Children of a fork do not call it.
    """
    if name in sys.modules:
        then()
        yield
        return
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.leave()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module as the other finders do, and has the loader tell when it is done.

    An import that fails is followed by another look, with another loader.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then: Callable[[], None] | None = then
        self._process = os.getpid()
        self._asking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        # Another finder may ask all others as well.
        if name != self._name or self._asking:
            return None
        self._asking = True
        try:
            for finder in list(sys.meta_path):
                if finder is not self and hasattr(finder, "find_spec"):
                    spec = finder.find_spec(name, path, target)
                    if spec is not None:
                        self._attend(spec.loader)
                        return spec
        finally:
            self._asking = False
        return None

    def leave(self) -> None:
        """Wait no longer."""
        self._then = None
        # At the end of the interpreter there is no list any more.
        with suppress(ValueError, AttributeError):
            sys.meta_path.remove(self)

    def _attend(self, loader: Any) -> None:
        # On the instance: its type, and what it says about itself, stay as they are.
        if loader is None or isinstance(loader, type):
            return

        def exec_module(module: ModuleType) -> None:
            with suppress(AttributeError):
                del loader.exec_module
            loader.exec_module(module)
            if module.__name__ == self._name:
                self._imported()

        with suppress(AttributeError):
            loader.exec_module = exec_module

    def _imported(self) -> None:
        then = self._then
        self.leave()
        if then is not None and os.getpid() == self._process:
            then()
