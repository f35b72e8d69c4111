"""Time without device work by cause: from profiled steps, where it is seen, to the step's own.

What the host waits for or does beside launching (a synchronisation, its data loader, a driver's
call) takes as long without the profiler. Launching does not: the profiler records each operator
and call. So what the timed step is shorter by is taken from the launches first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpuprof.roofline.classes import GARBAGE_COLLECTION, UNEXPLAINED, ClassName
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

    by_class: Mapping[ClassName, Waiting]
    # It was the program's first step, which loads code, builds plans and has a batch ready: why
    # others wait it does not tell.
    first_step: bool = False
    # For how long Python collected garbage in a timed step.
    collecting_ns: int = 0


def waiting_parts(
    seen: SeenWaiting, idle_ns: int, *, step_ns: int, basis: StepDefinition
) -> WaitingParts:
    """`seen` in a step of `step_ns` that has `idle_ns` without device work, by what the step is.

    As far as Python collected garbage in it for longer than the device was busy, that had no work.
    """
    by_class = seen.by_class
    if basis != "timed":
        return _in_profiled_step(by_class, idle_ns, step_ns=step_ns)
    certain_ns = min(idle_ns, max(0, seen.collecting_ns - (step_ns - idle_ns)))
    if seen.first_step:
        return _unlike(by_class, idle_ns, certain_ns)
    if certain_ns > by_class.get(GARBAGE_COLLECTION, Waiting()).total_ns:
        by_class = {**by_class, GARBAGE_COLLECTION: Waiting(keeps_ns=certain_ns)}
    return _in_timed_step(by_class, idle_ns)


def _in_timed_step(seen: Mapping[ClassName, Waiting], idle_ns: int) -> WaitingParts:
    """`seen` in a step that ran without the profiler and has `idle_ns` without device work.

    Where it waits longer than the profiled steps did, nothing tells why. Where it waits for less
    than what keeps its length, that is shortened alike.
    """
    profiled_ns = _total(seen)
    factors, left_ns = Factors(), 0.0
    if idle_ns > profiled_ns * (1 + _SAME):
        left_ns = idle_ns - profiled_ns
    elif idle_ns >= profiled_ns:
        longer = idle_ns / profiled_ns if profiled_ns else 1.0
        factors = Factors(longer, longer)
    else:
        factors = _filled(seen, idle_ns)
    lengths = _lengths(seen, factors, left_ns, idle_ns)
    parts = {}
    for kind, length_ns in lengths.items():
        own_ns = seen.get(kind, Waiting()).total_ns
        # As if all others had kept theirs, and as if this one had.
        least_ns = max(0, round(idle_ns - (profiled_ns - own_ns) - left_ns))
        most_ns = min(round(own_ns + left_ns), idle_ns)
        parts[kind] = WaitingPart(length_ns, min(least_ns, length_ns), max(most_ns, length_ns))
    return WaitingParts(parts, factors)


def _unlike(seen: Mapping[ClassName, Waiting], idle_ns: int, collecting_ns: int) -> WaitingParts:
    """Nothing but `collecting_ns` for certain: each of `seen` may be all of the rest or nothing."""
    left_ns = idle_ns - collecting_ns
    parts = {
        kind: WaitingPart(0, 0, min(round(part.total_ns), left_ns)) for kind, part in seen.items()
    }
    if collecting_ns:
        parts[GARBAGE_COLLECTION] = WaitingPart(collecting_ns, collecting_ns, idle_ns)
    if left_ns:
        parts[UNEXPLAINED] = WaitingPart(left_ns, 0, left_ns)
    return WaitingParts(parts, Factors(0.0, 0.0))


def _filled(seen: Mapping[ClassName, Waiting], idle_ns: int) -> Factors:
    """What of `seen` is in `idle_ns`, which is less: what keeps its length comes first."""
    kept_ns = sum(part.keeps_ns for part in seen.values())
    if idle_ns < kept_ns:
        return Factors(idle_ns / kept_ns, 0.0)
    return Factors(1.0, (idle_ns - kept_ns) / (_total(seen) - kept_ns))


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
