"""Plug-ins: what other installed distributions add, found by their entry points.

A group of entry points holds what the list of that kind here holds: the rows of `readers` are those
of `gpuprof.collectors.opening.formats`. A group is loaded where its list is first needed, so that
no plug-in costs a command anything that does not use its kind. `GPUPROF_PLUGINS=0` leaves all out.

What a plug-in does wrong is one sentence, and everything else goes on without it. Of two that claim
the same thing ours stays; between plug-ins it is the first by the name of its distribution, then of
its entry point.
"""

from gpuprof.collectors.plugins.discovery import (
    DISABLING,
    Installed,
    all_installed,
    installed,
    switched_off,
)
from gpuprof.collectors.plugins.group import LOADING, Plugin, PluginGroup
from gpuprof.collectors.plugins.origin import PluginOrigin, PluginUse, uses_of
from gpuprof.collectors.plugins.problems import (
    PluginProblem,
    noted_problems,
    problem_with,
    tell_problems_to,
)

__all__ = [
    "DISABLING",
    "LOADING",
    "Installed",
    "Plugin",
    "PluginGroup",
    "PluginOrigin",
    "PluginProblem",
    "PluginUse",
    "all_installed",
    "installed",
    "noted_problems",
    "problem_with",
    "switched_off",
    "tell_problems_to",
    "uses_of",
]
