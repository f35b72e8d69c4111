"""Counted kernels as points of the roofline at a cache's level."""

from typing import Literal

from gpuprof.reports.figures import launched_by
from gpuprof.roofline.analysis import Analysis, Bottleneck, RooflinePoint
from gpuprof.roofline.measured_figures import MeasuredKernel


def level_points(
    analysis: Analysis, level: Literal["L2", "L1"]
) -> tuple[tuple[str, RooflinePoint], ...]:
    """(row id, point) by counted operations and the level's bytes, at the speed of the recording.

    None where no ceiling of the level is known: they would be compared with that of DRAM.
    """
    if analysis.measured is None or all(c.level != level for c in analysis.ceilings):
        return ()
    return tuple(
        (f"measured-{index}", _point(kernel, analysis, level))
        for index, kernel in enumerate(analysis.measured.kernels)
    )


def _point(kernel: MeasuredKernel, analysis: Analysis, level: Literal["L2", "L1"]) -> RooflinePoint:
    counts = [part.measured for part in kernel.flops if part.measured is not None]
    # Figures are of one call, the device time is of all.
    flops = sum(counts) * (kernel.calls or kernel.launches) if counts else None
    known = flops is not None and kernel.device_ns > 0
    device_ns = analysis.coverage.device_ns
    return RooflinePoint(
        level="kernel",
        name=" + ".join(kernel.kernels),
        op=kernel.op,
        phase=kernel.phase,
        calls=kernel.launches,
        device_ns=kernel.device_ns,
        device_fraction=kernel.device_ns / device_ns if device_ns else 0.0,
        arithmetic_intensity=(
            kernel.flops_per_l2_byte if level == "L2" else kernel.flops_per_l1_byte
        ),
        flops_per_s=flops / kernel.device_ns * 1e9 if known and flops is not None else None,
        bottleneck=_verdict(kernel, analysis),
    )


def _verdict(kernel: MeasuredKernel, analysis: Analysis) -> Bottleneck:
    """That of the kernels, where it is the same in all shapes that they ran on."""
    found = {
        point.bottleneck.kind
        for point in analysis.kernels
        if (launched_by(point), point.phase) == (kernel.op, kernel.phase)
        and point.name in kernel.kernels
    }
    kind = found.pop() if len(found) == 1 else "unknown"
    return Bottleneck(kind, "as counted by Nsight Compute", None)
