"""The plug-ins that are installed, and what each adds or why it does not."""

from collections.abc import Iterator
from typing import Any, Final

from gpuprof.collectors.live.roster import COLLECTORS
from gpuprof.collectors.opening.formats import READERS
from gpuprof.collectors.plugins import (
    DISABLING,
    Installed,
    PluginGroup,
    all_installed,
    installed,
    noted_problems,
    switched_off,
)
from gpuprof.reports.sections import PLUGGED
from gpuprof.roofline.classes import CLASSES
from gpuprof.roofline.cost_models import plugged, registered_names
from gpuprof.roofline.machine.check import Check
from gpuprof.roofline.machine.devices import DEVICES

_TITLE: Final = "Plug-ins"
# Its module cannot be imported without torch.
_NEEDS_TORCH: Final = "gpuprof.reference_kernels"


def plugin_checks(*, with_torch: bool) -> Iterator[Check]:
    """One line for each entry point; those that need torch are loaded only `with_torch`."""
    if switched_off():
        yield Check(_TITLE, "all", "no", f"switched off by {DISABLING}", f"unset {DISABLING}")
        return
    plugged.load_plugged_models()
    for one in installed(plugged.GROUP):
        yield _check(one, plugged.ADDS, registered_names(one.origin))
    groups: list[PluginGroup[Any]] = [READERS, COLLECTORS, CLASSES, DEVICES, PLUGGED]
    if with_torch:
        from gpuprof.reference_kernels.families import KERNELS

        groups.append(KERNELS)
    for group in groups:
        loaded = group.load()
        for one in installed(group.name):
            names = [
                next(iter(group.claims(plugin.value)))
                for plugin in loaded
                if plugin.origin == one.origin
            ]
            yield _check(one, group.adds, names)
    known = [plugged.GROUP, *(group.name for group in groups), _NEEDS_TORCH]
    for one in all_installed():
        if one.origin.group not in known:
            there = f"there are {', '.join(sorted(set(known)))}"
            finding = f"{one.origin.group} is no group of plug-ins"
            yield Check(_TITLE, _label(one), "no", finding, there)


def _label(one: Installed) -> str:
    return f"{one.origin.distribution}: {one.origin.entry_point}"


def _check(one: Installed, adds: str, names: list[str]) -> Check:
    """What the entry point `one` adds under `names`; what is wrong with it is behind that."""
    found = [problem.finding for problem in noted_problems() if problem.origin == one.origin]
    label = _label(one)
    adding = f"{adds} {', '.join(names)}" if names else f"no {adds}"
    if not found:
        return Check(_TITLE, label, "yes", adding)
    return Check(_TITLE, label, "partly" if names else "no", adding, "; ".join(found))
