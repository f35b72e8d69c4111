"""Time without device work by cause: from profiled steps, where it is seen, to the step's own.

What the host waits for or does beside launching (a synchronisation, its data loader, a driver's
call) takes as long without the profiler. Launching does not: the profiler records each operator
and call. So what the timed step is shorter by is taken from the launches, after what only some of
the profiled steps did: the median step did not. What was counted in timed steps themselves has its
length from there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuprof.roofline.classes import UNEXPLAINED, ClassName
from gpuprof.roofline.step_figures import StepDefinition

# The most that torch.profiler made a step longer: a launch-bound block on an H200 took 229 us
# without it and 538 us with it and shapes.
LONGEST_STRETCH: Final = 2.35
# Steps wait by so much more or less than others for the same reason.
_SAME: Final = 0.1


@dataclass(frozen=True)
class Waiting:
    """Time without device work of one class in one profiled step, in ns."""

    # What is as long without the profiler, and what the profiler lengthens.
    keeps_ns: float = 0.0
    shrinks_ns: float = 0.0

    @property
    def total_ns(self) -> float:
        """Both."""
        return self.keeps_ns + self.shrinks_ns

    def scaled(self, factors: "Factors") -> float:
        """What of it is in a step of these `factors`, in ns."""
        return self.keeps_ns * factors.keeps + self.shrinks_ns * factors.shrinks


@dataclass(frozen=True)
class Factors:
    """How much of each kind of `Waiting` is in the step of a split."""

    keeps: float = 1.0
    shrinks: float = 1.0


@dataclass(frozen=True)
class WaitingPart:
    """The same in the step of a split, and within which it lies without the profiler."""

    nanoseconds: int
    least_ns: int
    most_ns: int


@dataclass(frozen=True)
class WaitingParts:
    """The parts by class, which add up to the step's time without device work."""

    parts: Mapping[ClassName, WaitingPart]
    factors: Factors


@dataclass(frozen=True)
class SeenWaiting:
    """Why no device had work in a profiled step, with what limits it to that step."""

    # The mean of the profiled steps, and their median where that is less.
    by_class: Mapping[ClassName, Waiting]
    usual: Mapping[ClassName, Waiting] = field(default_factory=dict)
    # It was one of the program's first steps and no other, which loads code, builds plans and has
    # a batch ready: why others wait it does not tell.
    alone: bool = False
    # For how long the host did it in a timed step, of what was counted there.
    counted_ns: Mapping[ClassName, int] = field(default_factory=dict)
    # For how long it did it in a profiled step while the device had work.
    hidden_ns: Mapping[ClassName, float] = field(default_factory=dict)


def waiting_parts(
    seen: SeenWaiting, idle_ns: int, *, step_ns: int, basis: StepDefinition
) -> WaitingParts:
    """`seen` in a step of `step_ns` that has `idle_ns` without device work, by what the step is."""
    if basis != "timed":
        return _in_profiled_step(seen.by_class, idle_ns, step_ns=step_ns)
    counted = _counted(seen, idle_ns, step_ns - idle_ns)
    if seen.alone:
        return _unlike(seen.by_class, idle_ns, counted)
    left_ns = idle_ns - sum(part.nanoseconds for part in counted.values())
    others = {kind: part for kind, part in seen.by_class.items() if kind not in counted}
    found = _in_timed_step(others, seen.usual, left_ns)
    return WaitingParts({**found.parts, **counted}, found.factors)


def _counted(seen: SeenWaiting, idle_ns: int, busy_ns: int) -> dict[ClassName, WaitingPart]:
    """What was counted in timed steps, as far as the device had no work meanwhile.

    As much is hidden by its work as was in the profiled steps. At least what it cannot hide is not.
    """
    parts: dict[ClassName, WaitingPart] = {}
    left_ns = idle_ns
    for kind, host_ns in sorted(seen.counted_ns.items(), key=lambda item: (-item[1], item[0])):
        certain_ns = max(0, host_ns - busy_ns)
        # Where no profiled step did it, nobody saw what hides it.
        hidden_ns = seen.hidden_ns.get(kind, 0.0) if kind in seen.by_class else busy_ns
        length_ns = min(left_ns, max(certain_ns, round(host_ns - hidden_ns)))
        if length_ns or kind in seen.by_class:
            parts[kind] = WaitingPart(
                length_ns, min(certain_ns, length_ns), min(idle_ns, max(host_ns, length_ns))
            )
        left_ns -= length_ns
    if seen.alone:
        # What hides it in other steps was not seen.
        return {
            kind: WaitingPart(part.least_ns, part.least_ns, idle_ns)
            for kind, part in parts.items()
            if part.least_ns
        }
    return parts


def _in_timed_step(
    seen: Mapping[ClassName, Waiting], usual: Mapping[ClassName, Waiting], idle_ns: int
) -> WaitingParts:
    """`seen` in a step that ran without the profiler and has `idle_ns` without device work.

    Where it waits longer than the profiled steps did, nothing tells why. Where it waits for less
    than what keeps its length, all of it was longer in the profiled steps, and is shortened alike.
    """
    profiled_ns = _total(seen)
    factors, left_ns = Factors(), 0.0
    pattern = seen
    if idle_ns > profiled_ns * (1 + _SAME):
        left_ns = idle_ns - profiled_ns
    elif idle_ns >= profiled_ns:
        longer = idle_ns / profiled_ns if profiled_ns else 1.0
        factors = Factors(longer, longer)
    else:
        pattern = _more_usual(seen, usual, idle_ns)
        factors = _filled(pattern, idle_ns)
    lengths = _lengths(pattern, factors, left_ns, idle_ns)
    longest_ns = {kind: max(part.total_ns, pattern[kind].total_ns) for kind, part in seen.items()}
    parts = {}
    for kind, length_ns in lengths.items():
        own_ns = longest_ns.get(kind, 0.0)
        # As if all others had kept theirs, and as if this one had.
        least_ns = max(0, round(idle_ns - (sum(longest_ns.values()) - own_ns) - left_ns))
        most_ns = min(round(own_ns + left_ns), idle_ns)
        parts[kind] = WaitingPart(length_ns, min(least_ns, length_ns), max(most_ns, length_ns))
    return WaitingParts(parts, factors)


def _more_usual(
    seen: Mapping[ClassName, Waiting], usual: Mapping[ClassName, Waiting], idle_ns: int
) -> Mapping[ClassName, Waiting]:
    """The mean step that was `seen`, as much more like the median one as brings it to `idle_ns`."""
    if any(kind not in usual for kind in seen):
        return seen
    shorter_ns = _total(seen) - sum(usual[kind].total_ns for kind in seen)
    if shorter_ns <= 0:
        return seen
    share = min(1.0, (_total(seen) - idle_ns) / shorter_ns)
    return {
        kind: Waiting(
            part.keeps_ns + share * (usual[kind].keeps_ns - part.keeps_ns),
            part.shrinks_ns + share * (usual[kind].shrinks_ns - part.shrinks_ns),
        )
        for kind, part in seen.items()
    }


def _unlike(
    seen: Mapping[ClassName, Waiting], idle_ns: int, counted: Mapping[ClassName, WaitingPart]
) -> WaitingParts:
    """Nothing but `counted` for certain: each of `seen` may be all of the rest or nothing."""
    left_ns = idle_ns - sum(part.nanoseconds for part in counted.values())
    parts = {
        kind: WaitingPart(0, 0, min(round(part.total_ns), left_ns)) for kind, part in seen.items()
    }
    parts.update(counted)
    if left_ns:
        parts[UNEXPLAINED] = WaitingPart(left_ns, 0, left_ns)
    return WaitingParts(parts, Factors(0.0, 0.0))


def _filled(seen: Mapping[ClassName, Waiting], idle_ns: int) -> Factors:
    """What of `seen` is in `idle_ns`, which is less.

    Launches are shorter first, by as much as the profiler makes them longer; then all is.
    """
    kept_ns = sum(part.keeps_ns for part in seen.values())
    shrinking_ns = _total(seen) - kept_ns
    certain_ns = kept_ns + shrinking_ns / LONGEST_STRETCH
    if idle_ns < certain_ns:
        shorter = idle_ns / certain_ns
        return Factors(shorter, shorter / LONGEST_STRETCH)
    return Factors(1.0, (idle_ns - kept_ns) / shrinking_ns if shrinking_ns else 1.0)


def _in_profiled_step(
    seen: Mapping[ClassName, Waiting], idle_ns: int, *, step_ns: int
) -> WaitingParts:
    """`seen` in a profiled step of `step_ns`.

    Without the profiler it is shorter by what that adds to launches, at most as much as makes the
    whole step 2.35 times as long.
    """
    profiled_ns = _total(seen)
    scale = idle_ns / profiled_ns if profiled_ns else 1.0
    factors = Factors(scale, scale)
    lengths = _lengths(seen, factors, 0.0, idle_ns)
    busy_ns = step_ns - idle_ns
    kept_ns = sum(part.keeps_ns for part in seen.values()) * scale
    shrinking_ns = idle_ns - kept_ns
    certain_ns = min(shrinking_ns, max(0.0, step_ns / LONGEST_STRETCH - busy_ns - kept_ns))
    certain = certain_ns / shrinking_ns if shrinking_ns > 0 else 0.0
    parts = {}
    for kind, length_ns in lengths.items():
        own = seen.get(kind)
        # Of time without a known cause nothing tells whether the profiler made it.
        least = certain * length_ns
        if own is not None:
            least = own.scaled(Factors(scale, certain * scale))
        parts[kind] = WaitingPart(length_ns, min(round(least), length_ns), length_ns)
    return WaitingParts(parts, factors)


def _total(seen: Mapping[ClassName, Waiting]) -> float:
    return sum(part.total_ns for part in seen.values())


def _lengths(
    seen: Mapping[ClassName, Waiting],
    factors: Factors,
    unexplained_ns: float,
    idle_ns: int,
) -> dict[ClassName, int]:
    """Whole numbers that add up to `idle_ns`. What rounding leaves goes to the largest."""
    scaled = {kind: part.scaled(factors) for kind, part in seen.items()}
    if unexplained_ns or not any(scaled.values()):
        scaled[UNEXPLAINED] = scaled.get(UNEXPLAINED, 0.0) + (unexplained_ns or float(idle_ns))
    lengths = {kind: int(length) for kind, length in scaled.items()}
    largest = max(scaled, key=lambda kind: scaled[kind])
    lengths[largest] += idle_ns - sum(lengths.values())
    return {kind: length for kind, length in lengths.items() if length}
