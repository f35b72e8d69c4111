"""Paths of modules with repeated blocks taken together: layers.0.q, layers.1.q are layers.*.q."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

# A number, alone (nn.ModuleList) or behind a name (torchvision's encoder_layer_0).
_NUMBERED: Final = re.compile(r"(|.*_)\d+$")
_Parts = tuple[str, ...]


def folded_paths(paths: Iterable[str]) -> dict[str, str]:
    """By each of `paths` the one that stands for it and its repetitions.

    Blocks repeat where several parts with a number stand at one place and modules stand in them:
    two layers of one nn.Sequential do other things and are kept apart.
    """
    found: dict[str, str] = {}
    _fold([(path, tuple(path.split("."))) for path in set(paths)], (), found)
    return found


def _fold(paths: list[tuple[str, _Parts]], above: _Parts, found: dict[str, str]) -> None:
    """Fill `found` for `paths`, whose parts before the given ones are folded to `above`."""
    by_name: defaultdict[str, list[tuple[str, _Parts]]] = defaultdict(list)
    blocks: defaultdict[str, set[str]] = defaultdict(set)
    for path, parts in paths:
        if not parts:
            found[path] = ".".join(above)
        elif len(parts) > 1 and (numbered := _NUMBERED.match(parts[0])):
            blocks[numbered[1]].add(parts[0])
    for path, parts in paths:
        if parts:
            numbered = _NUMBERED.match(parts[0])
            repeated = numbered is not None and len(blocks[numbered[1]]) > 1
            name = f"{numbered[1]}*" if numbered is not None and repeated else parts[0]
            by_name[name].append((path, parts[1:]))
    for name, below in by_name.items():
        _fold(below, (*above, name), found)
