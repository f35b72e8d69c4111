"""Where the time of one step went: a part for each class, without overlap or remainder."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.classes import (
    AT_ROOF,
    COMMUNICATION,
    COPY,
    LAUNCH,
    OTHER_DEVICE,
    OTHER_RANK,
    OUTSIDE,
    UNKNOWN,
    ClassName,
    bottleneck_class,
    classes,
)
from gpuprof.roofline.durations import duration
from gpuprof.roofline.step_figures import (
    Exposed,
    SplitPart,
    StepDefinition,
    StepSplit,
    StepTimes,
)
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.steps.waiting import SeenWaiting, waiting_parts

# Device work in profiled steps may exceed the timed step by so much before it counts as other
# work: its length was seen to differ by 1 % between steps with and without a profiler.
_BUSY_TOLERANCE: Final = 1.02


def split_step(
    times: StepTimes,
    stretch: Stretch,
    use: Exposed,
    points: Sequence[RooflinePoint],
    *,
    waiting: SeenWaiting,
    slower_ns: int,
    on_cpu: bool,
) -> StepSplit:
    """One step's time on one device as computing, exposed communication and copies, and waiting.

    `use` is how the device spent a step of `stretch`, `points` are its computing work in those
    steps. Device work keeps its length under the profiler on a GPU, so it is set against the
    unprofiled step time where that is known; a CPU's operators are stretched themselves. What it
    waits for other ranks is not work: a step has as much of it as it has room for. Waiting in calls
    that follow others directly counts to communication.

    Of the time in which anything computes, as much is at the roof as the work needs there. What
    overlaps with other computing takes from the time lost, for it is hidden. `slower_ns`, by which
    the work was longer in a timed step, is lost too. `waiting` is why no device had work in a
    profiled step.
    """
    timed_ns = times.median_ns if times.timed and not on_cpu and not times.unequal else None
    waits_ns = use.rank_waits_ns or 0
    fits = timed_ns is not None and use.needed_ns <= timed_ns * _BUSY_TOLERANCE
    step_ns = timed_ns if fits and timed_ns is not None else stretch.mean_ns
    # Where nothing computes, links bind, which no clock of the device slows.
    slower_ns = slower_ns if fits and use.computing_ns and points else 0
    if fits:
        # What work repeats within may be of either; it is clipped from all.
        room_ns = round(step_ns * _BUSY_TOLERANCE) - use.needed_ns - slower_ns
        waits_ns = min(waits_ns, max(0, room_ns))
    calls_ns = round(waits_ns * use.call_share_of_waits)
    computed = _computing(points, use.computing_ns, steps=stretch.steps)
    spent = {
        **(_longer(computed, slower_ns, points) if slower_ns else computed),
        COMMUNICATION: use.communication_ns - (use.rank_waits_ns or 0) + calls_ns,
        OTHER_RANK: waits_ns - calls_ns,
        COPY: use.copies_ns,
    }
    clipped_ns = max(0, use.needed_ns + waits_ns - step_ns)
    if clipped_ns:
        spent = _clipped(spent, step_ns)
    idle_ns = step_ns - sum(spent.values())
    basis: StepDefinition = "timed" if fits else stretch.definition
    spent[OTHER_DEVICE] = min(idle_ns, use.other_devices_ns)
    waits = waiting_parts(
        waiting, idle_ns - spent[OTHER_DEVICE], step_ns=step_ns, basis=basis
    ).parts
    spent.update({kind: part.nanoseconds for kind, part in waits.items()})
    # The profiler lengthens a CPU's operators as it does what is between them.
    unsure = basis != "timed" and not on_cpu
    least = {kind: part.least_ns for kind, part in waits.items()} if unsure else {}
    always = OUTSIDE if on_cpu else LAUNCH
    return StepSplit(
        step_ns=step_ns,
        basis=basis,
        parts=tuple(
            SplitPart(kind, spent.get(kind, 0), least.get(kind))
            for kind, row in classes().items()
            if spent.get(kind) or kind == always or not (row.idle or row.rare)
        ),
        clipped_ns=clipped_ns,
        slower_ns=slower_ns,
    )


def _longer(
    computed: Mapping[ClassName, int], by_ns: int, points: Sequence[RooflinePoint]
) -> dict[ClassName, int]:
    """`computed` where the same work took longer: what it needs at the roof stays as it is.

    What is lost grows in proportion. Where nothing was, the largest of `points` loses it all.
    """
    lost = {kind: part for kind, part in computed.items() if kind != AT_ROOF}
    at_roof = {kind: part for kind, part in computed.items() if kind == AT_ROOF}
    if any(lost.values()):
        return {**at_roof, **_in_proportion(lost, sum(lost.values()) + by_ns)}
    kind = max(points, key=lambda point: point.device_ns).bottleneck.kind
    return {**at_roof, **lost, kind: by_ns}


def _clipped(spent: Mapping[ClassName, int], step_ns: int) -> dict[ClassName, int]:
    """`spent` of a step that is shorter: what is at the roof stays as far as it can."""
    at_roof_ns = min(spent.get(AT_ROOF, 0), step_ns)
    others = {kind: part for kind, part in spent.items() if kind != AT_ROOF}
    return {AT_ROOF: at_roof_ns, **_in_proportion(others, step_ns - at_roof_ns)}


def clip_warning(split: StepSplit | None) -> str | None:
    """A sentence where device work did not fit into the step, with its size."""
    if split is None or not split.clipped_ns:
        return None
    whole_ns = split.step_ns + split.clipped_ns
    return (
        f"the device works for {duration(whole_ns, 4)} in a profiled step, "
        f"{duration(split.clipped_ns)} longer than the step ({duration(split.step_ns, 4)}, "
        f"{split.basis}): the split leaves that out"
    )


def _computing(
    points: Sequence[RooflinePoint], computing_ns: int, *, steps: int
) -> dict[ClassName, int]:
    """The `computing_ns` of one step as the time at the roof, and what is lost by class."""
    lost: Counter[ClassName] = Counter()
    for point in points:
        kind, lost_ns = _lost(point)
        lost[kind] += lost_ns
    alone_ns, lost_ns = sum(point.device_ns for point in points), sum(lost.values())
    at_roof_ns = alone_ns - lost_ns
    hidden_ns = max(0, alone_ns - computing_ns * steps)
    if hidden_ns < lost_ns:
        lost = Counter(_in_proportion(lost, lost_ns - hidden_ns))
    else:
        lost.clear()
    return _in_proportion({AT_ROOF: at_roof_ns, **lost}, computing_ns)


def _in_proportion(parts: Mapping[ClassName, int], total_ns: int) -> dict[ClassName, int]:
    """`parts` scaled to add up to `total_ns`. What rounding leaves goes to the largest."""
    before_ns = sum(parts.values())
    if not before_ns:
        return {**parts}
    scaled = {kind: part * total_ns // before_ns for kind, part in parts.items()}
    largest = max(scaled, key=lambda kind: scaled[kind])
    scaled[largest] += total_ns - sum(scaled.values())
    return scaled


def _lost(point: RooflinePoint) -> tuple[ClassName, int]:
    """The class that `point` loses time to, and how much of its device time."""
    kind = point.bottleneck.kind
    if not bottleneck_class(kind).has_roof:
        return kind, point.device_ns
    if point.roof_ns is None:
        return UNKNOWN, point.device_ns
    return kind, max(0, point.device_ns - point.roof_ns)
