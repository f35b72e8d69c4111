"""What computes in the steps that a split is of, as points."""

from collections.abc import Mapping

from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.points.classify import WorkKey, WorkVerdict
from gpuprof.roofline.points.points import Machine, op_points
from gpuprof.roofline.points.verdicts import work_verdicts
from gpuprof.roofline.steps.exposure import computing, on_device
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.work import Work


def computing_points(
    work: Work,
    stretch: Stretch,
    device: int | None,
    machine: Machine,
    verdicts: Mapping[WorkKey, WorkVerdict],
) -> tuple[RooflinePoint, ...]:
    """The points of what computes on `device` in the steps of `stretch`."""
    computes = computing(work)
    if computes.kernels.height < work.kernels.height:
        # What computes in an operator that mostly crosses a link has its own verdict.
        verdicts = work_verdicts(computes, machine)
    return op_points(on_device(stretch.work_of(computes), device), machine, verdicts)
