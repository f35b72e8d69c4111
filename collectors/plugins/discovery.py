"""The entry points of installed distributions, without importing any of them."""

import os
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from gpuprof.collectors.errors import reason
from gpuprof.collectors.plugins.origin import PluginOrigin
from gpuprof.collectors.plugins.problems import problem_with

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

# The variable that leaves all plug-ins out.
DISABLING: Final = "GPUPROF_PLUGINS"
_OFF: Final = ("0", "false", "no", "off")
_PREFIX: Final = "gpuprof."


@dataclass(frozen=True)
class Installed:
    """One entry point, not imported yet."""

    origin: PluginOrigin
    entry_point: "EntryPoint"

    def load(self) -> Any:
        """What the entry point names, or None, and the problem noted, where it fails to load."""
        try:
            # Stdout may be for JSON, or a program's own.
            with redirect_stdout(sys.stderr):
                return self.entry_point.load()
        # A module may do anything as it is imported; even one that ends the program has to leave
        # the profile of that program alone.
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {reason(error)}"
            problem_with(self.origin, f"{self.entry_point.value} does not load: {what}")
            return None


def switched_off() -> bool:
    """Whether the user wants no plug-ins."""
    return os.environ.get(DISABLING, "").lower() in _OFF


def installed(group: str) -> tuple[Installed, ...]:
    """The entry points of `group` in order of precedence; none where they are switched off."""
    return tuple(one for one in all_installed() if one.origin.group == group)


def all_installed() -> tuple[Installed, ...]:
    """Those of all groups whose names begin as ours do, also of groups that do not exist."""
    return () if switched_off() else _all()


@cache
def _all() -> tuple[Installed, ...]:
    # It costs more than the rest of a short command.
    from importlib.metadata import distributions

    found: dict[str, tuple[Installed, ...]] = {}
    for distribution in distributions():
        try:
            ours = _entry_points_of(distribution)
        # Of a damaged installation nothing can be asked.
        except Exception:
            continue
        if ours:
            # Of two of one name the first on the path is the one that is imported.
            found.setdefault(ours[0].origin.name, ours)
    return tuple(
        sorted((one for each in found.values() for one in each), key=lambda one: one.origin)
    )


def _entry_points_of(distribution: "Distribution") -> tuple[Installed, ...]:
    ours = [one for one in distribution.entry_points if one.group.startswith(_PREFIX)]
    if not ours:
        return ()
    name, version = distribution.metadata["Name"], distribution.version
    return tuple(Installed(PluginOrigin(name, one.name, one.group, version), one) for one in ours)
