"""The plug-ins that an analysis asks: for cost models, bottleneck classes and peaks of devices."""

from collections.abc import Iterable
from typing import Final

from gpuprof.collectors.plugins import PluginUse, installed
from gpuprof.roofline.classes import CLASSES
from gpuprof.roofline.cost_models.plugged import GROUP
from gpuprof.roofline.machine.devices import DEVICES

_ASKED: Final = (GROUP, CLASSES.name, DEVICES.name)


def installed_plugins() -> tuple[str, ...]:
    """The distributions here that an analysis asks, with their versions."""
    found = {one.origin.distribution for group in _ASKED for one in installed(group)}
    return tuple(sorted(found))


def can_be_read_here(plugins: Iterable[PluginUse]) -> bool:
    """Whether all classes that plug-ins gave to an analysis are known here."""
    known = {plugin.value.row.name for plugin in CLASSES.load()}
    return all(use.of in known for use in plugins if use.adds == CLASSES.adds)
