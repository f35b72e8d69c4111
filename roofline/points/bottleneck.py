"""Bottleneck classes: what holds a piece of work, or a whole step, back."""

from dataclasses import dataclass

from gpuprof.roofline.analysis import Bottleneck, StepSplit
from gpuprof.roofline.classes import (
    COMPUTE,
    LATENCY,
    MEMORY,
    UNKNOWN,
    bottleneck_class,
)
from gpuprof.roofline.machine.roof_time import RoofTime

# Below this share of its roof a call that is too small for the device is called latency-bound:
# from half the roof on, its resource explains the larger part of its time.
_NEAR_ROOF = 0.5
# A call whose work would take less than this at the roof is shorter than what the device needs to
# start and drain it. GPU: an empty kernel takes about 2 us on an H100; CPU: dispatch of an
# operator takes a few us.
_SMALL_WORK_NS = {"cuda": 2_000, "hip": 2_000, "cpu": 5_000}


@dataclass(frozen=True)
class Launch:
    """How much parallelism a kernel launch had; None where unknown."""

    blocks: int | None
    multiprocessors: int | None

    @property
    def underfills(self) -> bool:
        """Whether some multiprocessors got no block."""
        return (
            self.blocks is not None
            and self.multiprocessors is not None
            and self.blocks < self.multiprocessors
        )


def classify(
    times: RoofTime,
    *,
    calls: int,
    device_ns: int,
    steps: int,
    device_kind: str,
    launch: Launch,
    reason_unknown: str,
) -> Bottleneck:
    """The class of `calls` calls that took `device_ns` in all and `times` at the roof in all."""
    binding = times.binding
    if binding is None or device_ns <= 0:
        return Bottleneck(UNKNOWN, reason_unknown, None)
    fraction = binding.ns / device_ns
    gain_ns = max(0, round((device_ns - binding.ns) / steps))
    per_call_us = device_ns / calls / 1e3
    roof_us = binding.ns / calls / 1e3
    small = roof_us * 1e3 < _SMALL_WORK_NS.get(device_kind, 2_000)
    if fraction < _NEAR_ROOF and (small or launch.underfills):
        evidence = f"{roof_us:.3g} us of work at the roof takes {per_call_us:.3g} us a call"
        if launch.underfills:
            evidence += f"; {launch.blocks} blocks for {launch.multiprocessors} multiprocessors"
        return Bottleneck(LATENCY, evidence, gain_ns)
    kind = COMPUTE if binding is times.compute else MEMORY
    return Bottleneck(kind, _share(fraction, binding.ceiling.label), gain_ns)


def _share(fraction: float, label: str) -> str:
    sentence = f"{fraction:.1%} of {label}"
    if fraction > 1:
        sentence += ": peak or count wrong, or the data stays in a cache"
    return sentence


def classify_step(
    split: StepSplit | None, reason_unknown: str, *, idle_is_stretched: bool = False
) -> Bottleneck:
    """The largest loss of a step.

    With `idle_is_stretched` time without device work is no candidate: the profiler made it longer,
    and no step without the profiler did the same work.
    """
    if split is None:
        return Bottleneck(UNKNOWN, reason_unknown, None)
    losses = [part for part in split.parts if bottleneck_class(part.kind).loss]
    if idle_is_stretched:
        losses = [part for part in losses if not bottleneck_class(part.kind).idle]
    largest = max(losses, key=lambda part: part.nanoseconds, default=None)
    if largest is None or largest.nanoseconds == 0:
        return Bottleneck(COMPUTE, "the whole step runs at its roof", 0)
    row, lost_ns = bottleneck_class(largest.kind), largest.nanoseconds
    evidence = f"{lost_ns / split.step_ns:.0%} of the step ({lost_ns / 1e6:.3g} ms): {row.loss}"
    return Bottleneck(row.name, evidence, lost_ns if row.removable else None)
