"""What plug-ins make of an analysis, so that a report can say so."""

from collections.abc import Mapping

from gpuprof.collectors.manifest import Device, ProcessInfo
from gpuprof.collectors.plugins import PluginUse, uses_of
from gpuprof.roofline.classes import CLASSES
from gpuprof.roofline.cost_models import origin_of, origin_of_kernel
from gpuprof.roofline.cost_models.plugged import ADDS
from gpuprof.roofline.machine.devices import DEVICES, plugged_row_of
from gpuprof.roofline.points.classify import WorkKey, WorkVerdict
from gpuprof.roofline.work.work import Work


def plugins_of(
    process: ProcessInfo,
    device: Device | None,
    work: Work,
    verdicts: Mapping[WorkKey, WorkVerdict],
) -> tuple[PluginUse, ...]:
    """What plug-ins recorded or read of `process`, and what they say of its `device` and work."""
    counted = {one.name for one in work.signatures if one.cost is not None}
    kinds = {verdict.kind for verdict in verdicts.values()}
    origins = {plugin.value.row.name: plugin.origin for plugin in CLASSES.load()}
    uses = (
        *process.plugins,
        *uses_of(ADDS, ((origin_of(name) or origin_of_kernel(name), name) for name in counted)),
        *uses_of(CLASSES.adds, ((origins.get(kind), kind) for kind in kinds)),
        *uses_of(DEVICES.adds, () if device is None else plugged_row_of(device)),
    )
    return tuple(sorted(uses))
