"""What binds a step: the resource that most of its time goes to."""

from collections import Counter
from collections.abc import Sequence

from gpuprof.roofline.advice_figures import Binding
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.classes import (
    AT_ROOF,
    COMPUTE,
    MEMORY,
    UNKNOWN,
    ClassName,
    bottleneck_class,
)
from gpuprof.roofline.machine.ceilings import Ceiling
from gpuprof.roofline.measured.speed_of_light import is_of_compute
from gpuprof.roofline.step_figures import StepSplit


def binding(
    split: StepSplit | None,
    points: Sequence[RooflinePoint],
    ceilings: Sequence[Ceiling],
    *,
    may_wait: bool,
) -> Binding | None:
    """What most of the step goes to; None where the step has no split.

    Computing counts whole, at its roof or below, for the resource that has its roof. All time
    without device work counts together, under the largest of its causes; of time that the profiler
    may have made, what is certain decides, and nothing where a step may not wait.
    """
    if split is None or not split.step_ns:
        return None
    spent: Counter[ClassName] = Counter()
    computing_ns = 0
    for part in split.parts:
        row = bottleneck_class(part.kind)
        if part.kind in (AT_ROOF, UNKNOWN) or row.has_roof:
            computing_ns += part.nanoseconds
        elif not row.idle:
            spent[part.kind] += part.nanoseconds
    spent.update(_by_resource(points, ceilings, computing_ns))
    certain = dict(spent)
    if split.idle_ns:
        largest = max(split.idle_parts, key=lambda part: part.nanoseconds)
        spent[largest.kind] += split.idle_ns
        waits_ns = sum(part.certain_ns for part in split.idle_parts)
        certain[largest.kind] = waits_ns if may_wait else 0
    kind = max(certain, key=lambda name: (certain[name], spent[name]), default=UNKNOWN)
    nanoseconds = spent[kind]
    return Binding(kind=kind, nanoseconds=nanoseconds, fraction=nanoseconds / split.step_ns)


def _by_resource(
    points: Sequence[RooflinePoint], ceilings: Sequence[Ceiling], computing_ns: int
) -> dict[ClassName, int]:
    """`computing_ns` divided as the points' device time is."""
    resource = {
        each.label: COMPUTE if each.kind == "compute" else MEMORY
        for each in ceilings
        if each.kind != "link"
    }
    times: Counter[ClassName] = Counter()
    for point in points:
        if point.transfer is None:
            times[resource.get(point.roof) or _by_own_peak(point.roof)] += point.device_ns
    total_ns = times.total()
    return {kind: computing_ns * time // total_ns for kind, time in times.items()}


def _by_own_peak(roof: str) -> ClassName:
    """The resource of work whose roof is the peak of its own counters."""
    of_compute = is_of_compute(roof)
    if of_compute is None:
        return UNKNOWN
    return COMPUTE if of_compute else MEMORY
