"""How the figures of a step are computed."""

import math
from collections.abc import Iterable

from gpuprof.reports.computation import Computation
from gpuprof.reports.computed.formulas import computation, seconds
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.classes import AT_ROOF, COMMUNICATION, COPY, UNKNOWN
from gpuprof.roofline.step_figures import StepSplit, StepTimes


def of_step_time(steps: StepTimes) -> Computation | None:
    """None where there is no step."""
    if steps.length_ns is None:
        return None
    if steps.definition == "whole trace":
        return computation("step time, whole trace", T=seconds(steps.length_ns))
    name = "step time, timed" if steps.timed else "step time, profiled"
    return computation(name, t=[seconds(each) for each in steps.samples_ns])


def of_profiler_stretch(steps: StepTimes) -> Computation | None:
    """None where timed or profiled steps are missing."""
    if steps.profiled_median_ns is None or not steps.median_ns or steps.profiler_stretch is None:
        return None
    return computation(
        "profiler stretch", p=seconds(steps.profiled_median_ns), t=seconds(steps.median_ns)
    )


def of_roof_share(split: StepSplit) -> Computation:
    """Of the device work's share at its roof."""
    return computation(
        "device work at its roof",
        R=seconds(split.nanoseconds(AT_ROOF)),
        D=seconds(split.busy_ns),
        U=seconds(split.nanoseconds(UNKNOWN)),
    )


def of_idle_share(split: StepSplit) -> Computation:
    """Of the share of a step without device work."""
    parts = [seconds(part.nanoseconds) for part in split.idle_parts if part.nanoseconds]
    return computation("waiting for the host", w=parts or [0.0], T=seconds(split.step_ns))


def of_modelled_share(analysis: Analysis) -> Computation | None:
    """None where the analysis does not hold all operators, so that they do not add up to it."""
    counted = _device_ns(point for point in analysis.ops if point.flops is not None)
    all_ns = _device_ns(analysis.ops)
    share = analysis.coverage.with_flops
    if share is None or not all_ns or not math.isclose(counted / all_ns, share, rel_tol=1e-9):
        return None
    return computation("modelled", M=seconds(counted), D=seconds(all_ns))


def of_loss(analysis: Analysis, split: StepSplit) -> Computation:
    """Of the largest loss, as a share of the step."""
    lost_ns = split.nanoseconds(analysis.bottleneck.kind)
    return computation("largest loss", L=seconds(lost_ns), T=seconds(split.step_ns))


def of_part(analysis: Analysis, split: StepSplit, kind: str) -> Computation | None:
    """Of exposed communication and copies; None of other parts, and where the split clips them."""
    use, part_ns = analysis.exposed, split.nanoseconds(kind)
    if use is None or not part_ns:
        return None
    waits_ns = use.rank_waits_ns or 0
    if kind == COMMUNICATION and part_ns == use.communication_ns - waits_ns:
        return computation(
            "exposed communication", C=seconds(use.communication_ns), w=seconds(waits_ns)
        )
    if kind == COPY and use.copies and part_ns == use.copies_ns:
        return computation("exposed copies", c=[seconds(each.exposed_ns) for each in use.copies])
    return None


def _device_ns(points: Iterable[RooflinePoint]) -> int:
    return sum(point.device_ns for point in points)
