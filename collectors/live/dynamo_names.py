"""Which module of the program it is that dynamo calls L['self'].blocks.0.norm."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from torch import nn

from gpuprof.collectors.live.module_paths import WRAPPED, module_paths

# A variable of the compiled function or of its module, then attributes and items (torch/_dynamo/
# source.py): L['self'].blocks.0, L['self']._modules['blocks']._modules['0'], G['model'].blocks[0].
_PART: Final = re.compile(r"^[LG]\['(\w+)'\]|\.(\w+)|\[(?:'([^']+)'|(\d+))\]")
_HIDDEN: Final = frozenset({*WRAPPED, "_modules"})
_SELF: Final = "L['self']"


@dataclass(frozen=True)
class NamedModule:
    """What a name of dynamo's tells of a module."""

    # Below the variable that the name begins with; "" where that itself is the module, or where
    # nothing is known.
    path: str = ""
    # The variable is the `self` of the compiled function.
    of_self: bool = False
    # Paths of modules that are alive, of this class and with this end.
    candidates: tuple[str, ...] = ()


class ModuleNames:
    """The modules of a program, `alive` ones, by the ends of their paths."""

    def __init__(self, alive: Sequence[nn.Module]) -> None:
        self._ending: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        known = [module for module in alive if "_modules" in vars(module)]
        for module, path in zip(known, module_paths(known, known), strict=True):
            self._ending[path.rpartition(".")[2]].append((path, type(module).__name__))
        self._found: dict[tuple[tuple[str, str], ...], NamedModule] = {}

    def find(self, around: tuple[tuple[str, str], ...]) -> NamedModule:
        """The innermost of the modules `around`, each dynamo's name for it and its class."""
        if not around:
            return NamedModule()
        if around not in self._found:
            self._found[around] = self._find(*around[-1])
        return self._found[around]

    def _find(self, name: str, kind: str) -> NamedModule:
        parts = [next(filter(None, match.groups())) for match in _PART.finditer(name)]
        own = [part for part in parts[1:] if part not in _HIDDEN]
        if not own:
            return NamedModule(of_self=name.startswith(_SELF))
        # A model that stands in an attribute of something else: L['self'].model.blocks.0.
        candidates: tuple[str, ...] = ()
        path = ""
        while own and not candidates:
            path = ".".join(own)
            candidates = tuple(
                found
                for found, its_kind in self._ending[own[-1]]
                if its_kind == kind and (found == path or found.endswith(f".{path}"))
            )
            own = own[1:]
        return NamedModule(path, name.startswith(_SELF), candidates)
