"""Modules as points of the roofline."""

from typing import Final

from gpuprof.reports.sections.modules import module_rows
from gpuprof.roofline.analysis import Analysis, Bottleneck, RooflinePoint
from gpuprof.roofline.module_figures import ModuleWork

# Of a module's device time: with less of it counted, its intensity would be that of a part.
_ALL: Final = 0.999


def module_points(analysis: Analysis) -> tuple[tuple[str, RooflinePoint], ...]:
    """Modules that have a row, each with its id; without a place where a part is not counted."""
    return tuple((row, _point(module)) for row, module in module_rows(analysis))


def _point(module: ModuleWork) -> RooflinePoint:
    counted = module.counted_fraction >= _ALL and module.device_ns > 0
    return RooflinePoint(
        level="module",
        name=module.path,
        calls=module.instances,
        device_ns=module.device_ns,
        device_fraction=module.device_fraction,
        # Of which precisions they are is told of its operators.
        flops=() if counted and not module.flops else None,
        arithmetic_intensity=module.flops / module.bytes if counted and module.bytes else None,
        flops_per_s=module.flops / module.device_ns * 1e9 if counted else None,
        bottleneck=Bottleneck(module.kind, "the class of most of its device time", None),
    )
