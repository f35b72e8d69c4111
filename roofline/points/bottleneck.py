"""Bottleneck classes: what holds a piece of work, or a whole step, back."""

from dataclasses import dataclass

from gpuprof.roofline.analysis import Bottleneck, StepSplit
from gpuprof.roofline.classes import (
    COMPUTE,
    LATENCY,
    LAUNCH,
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
# The most that torch.profiler made a step longer: a launch-bound block on an H200 took 229 us
# without it and 538 us with it and shapes.
_LONGEST_STRETCH = 2.35


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


def classify_step(split: StepSplit | None, reason_unknown: str) -> Bottleneck:
    """The largest loss of a step.

    The profiler makes a step longer by what the host does in it, and so the time without device
    work. A gap of a profiled step therefore counts by what is left of it for certain.
    """
    if split is None:
        return Bottleneck(UNKNOWN, reason_unknown, None)
    losses = {
        part.kind: part.nanoseconds for part in split.parts if bottleneck_class(part.kind).loss
    }
    gap_ns, certain_ns = losses.get(LAUNCH, 0), certain_gap_ns(split)
    losses[LAUNCH] = certain_ns
    kind = max(losses, key=lambda name: losses[name])
    lost_ns = losses[kind]
    if lost_ns == 0 and gap_ns:
        # Nothing is lost for certain, and this may be.
        kind = LAUNCH
    if kind == LAUNCH:
        lost_ns = gap_ns
    if lost_ns == 0:
        return Bottleneck(COMPUTE, "the whole step runs at its roof", 0)
    row = bottleneck_class(kind)
    evidence = f"{lost_ns / split.step_ns:.0%} of the step ({_time(lost_ns)}): {row.loss}"
    if kind == LAUNCH and certain_ns < gap_ns:
        evidence += f"; without the profiler for {_time(certain_ns)} to {_time(gap_ns)}"
    elif gap_ns > lost_ns:
        evidence += (
            "; the device also waits for the host, without the profiler for "
            f"{_time(certain_ns)} to {_time(gap_ns)}"
        )
    return Bottleneck(row.name, evidence, lost_ns if row.removable else None)


def certain_gap_ns(split: StepSplit) -> int:
    """How long the device waits for the host at least in a step without the profiler."""
    gap_ns = split.nanoseconds(LAUNCH)
    if split.basis == "timed":
        return gap_ns
    return min(gap_ns, max(0, round(split.step_ns / _LONGEST_STRETCH) - split.busy_ns))


def _time(nanoseconds: int) -> str:
    if nanoseconds == 0:
        return "0"
    milliseconds = nanoseconds / 1e6
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1e3:.3g} s"
