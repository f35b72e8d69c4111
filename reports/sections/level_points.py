"""Counted kernels as points of the roofline, at DRAM or a cache, and where the models put them."""

from typing import Final, Literal, TypeAlias

from gpuprof.reports.figures import launched_by
from gpuprof.roofline.analysis import Analysis, Bottleneck, RooflinePoint
from gpuprof.roofline.measured_figures import MeasuredKernel

MemoryLevel: TypeAlias = Literal["DRAM", "L2", "L1"]
# Nearer to each other, in both coordinates, the counted and the modelled point are one.
_EQUAL: Final = 0.02


def level_points(analysis: Analysis, level: MemoryLevel) -> tuple[tuple[str, RooflinePoint], ...]:
    """(row id, point) by counted operations and the level's bytes, at the speed of the recording.

    None where no ceiling of a cache is known: they would be compared with that of DRAM.
    """
    known = level == "DRAM" or any(c.level == level for c in analysis.ceilings)
    if analysis.measured is None or not known:
        return ()
    return tuple(
        (f"measured-{index}", _point(kernel, analysis, level))
        for index, kernel in enumerate(analysis.measured.kernels)
    )


def modelled_places(analysis: Analysis) -> dict[str, tuple[float, float]] | None:
    """By row, FLOP/byte and FLOP/s by the models where that differs from what was counted.

    None where nothing that was counted has a model.
    """
    if analysis.measured is None:
        return None
    places = {}
    compared = False
    for row, point in level_points(analysis, "DRAM"):
        kernel = analysis.measured.kernels[int(row.rpartition("-")[2])]
        modelled = _modelled(kernel)
        compared |= modelled is not None
        counted = point.arithmetic_intensity, point.flops_per_s
        if modelled is None or None in counted:
            continue
        if any(abs(a - (b or 0)) > _EQUAL * a for a, b in zip(modelled, counted, strict=True)):
            places[row] = modelled
    return places if compared else None


def _modelled(kernel: MeasuredKernel) -> tuple[float, float] | None:
    counts = [part.modelled for part in kernel.flops]
    flops = sum(count for count in counts if count is not None)
    read, written = kernel.bytes_read.modelled, kernel.bytes_written.modelled
    if not kernel.calls or None in counts or read is None or written is None:
        return None
    if not flops or not read + written or kernel.device_ns <= 0:
        return None
    return flops / (read + written), flops * kernel.calls / kernel.device_ns * 1e9


def _flops_per_byte(kernel: MeasuredKernel, level: MemoryLevel) -> float | None:
    if level == "L2":
        return kernel.flops_per_l2_byte
    return kernel.flops_per_l1_byte if level == "L1" else kernel.flops_per_dram_byte


def _point(kernel: MeasuredKernel, analysis: Analysis, level: MemoryLevel) -> RooflinePoint:
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
        arithmetic_intensity=_flops_per_byte(kernel, level),
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
