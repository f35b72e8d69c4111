"""Which distribution a thing comes from, and what it did to one capture or analysis."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, order=True)
class PluginOrigin:
    """The entry point that a thing comes from. In order of precedence."""

    # Of the distribution, as its metadata spells it.
    name: str
    entry_point: str
    group: str
    version: str

    @property
    def distribution(self) -> str:
        """ "toy-gpuprof 1.0"."""
        return f"{self.name} {self.version}"


class PluginUse(msgspec.Struct, frozen=True, order=True):
    """One thing that a plug-in did to a capture or an analysis."""

    # With its version: "toy-gpuprof 1.0".
    distribution: str
    # What the group adds: "cost model".
    adds: str
    # "toy::scaled"
    of: str


def uses_of(adds: str, used: Iterable[tuple[PluginOrigin | None, str]]) -> tuple[PluginUse, ...]:
    """The uses among `used`, which holds names of things and where they come from; None: ours."""
    return tuple(
        sorted({PluginUse(origin.distribution, adds, name) for origin, name in used if origin})
    )
