"""What computes in the steps that a split is of, as points."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.points.classify import WorkKey, WorkVerdict
from gpuprof.roofline.points.points import OF_POINTS, Machine, op_points
from gpuprof.roofline.points.verdicts import work_verdicts
from gpuprof.roofline.steps.exposure import computing, on_device
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.work import Work

_READ: Final = (
    *OF_POINTS,
    *("step", "device", "start_ns", "over_link", "role", "grid_x", "grid_y", "grid_z"),
)


def computing_points(
    work: Work,
    stretch: Stretch,
    device: int | None,
    machine: Machine,
    verdicts: Mapping[WorkKey, WorkVerdict],
) -> tuple[RooflinePoint, ...]:
    """The points of what computes on `device` in the steps of `stretch`."""
    computes = computing(replace(work, kernels=work.kernels.select(_READ)))
    if computes.kernels.height < work.kernels.height:
        # What computes in an operator that mostly crosses a link has its own verdict.
        verdicts = work_verdicts(computes, machine)
    return op_points(on_device(stretch.work_of(computes), device), machine, verdicts)
