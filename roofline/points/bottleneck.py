"""Bottleneck classes: what holds a piece of work, or a whole step, back."""

from dataclasses import dataclass

from gpuprof.roofline.analysis import (
    OUTSIDE_OPERATORS,
    WAITING_FOR_HOST,
    Bottleneck,
    BottleneckKind,
    StepSplit,
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
        return Bottleneck("unknown", reason_unknown, None)
    fraction = binding.ns / device_ns
    gain_ns = max(0, round((device_ns - binding.ns) / steps))
    per_call_us = device_ns / calls / 1e3
    roof_us = binding.ns / calls / 1e3
    small = roof_us * 1e3 < _SMALL_WORK_NS.get(device_kind, 2_000)
    if fraction < _NEAR_ROOF and (small or launch.underfills):
        evidence = f"{roof_us:.3g} us of work at the roof takes {per_call_us:.3g} us a call"
        if launch.underfills:
            evidence += f"; {launch.blocks} blocks for {launch.multiprocessors} multiprocessors"
        return Bottleneck("latency", evidence, gain_ns)
    kind: BottleneckKind = "compute" if binding is times.compute else "memory"
    return Bottleneck(kind, _share(fraction, binding.ceiling.label), gain_ns)


def _share(fraction: float, label: str) -> str:
    sentence = f"{fraction:.1%} of {label}"
    if fraction > 1:
        sentence += ": peak or count wrong, or the data stays in a cache"
    return sentence


_WAITING = {
    WAITING_FOR_HOST: "the device has no work: it waits for the host",
    OUTSIDE_OPERATORS: "no operator runs, but the Python around them",
}


def classify_step(split: StepSplit | None, reason_unknown: str) -> Bottleneck:
    """The largest loss of a step."""
    if split is None:
        return Bottleneck("unknown", reason_unknown, None)
    losses: dict[BottleneckKind, tuple[int, str]] = {
        "launch": (split.waiting_ns, _WAITING[split.waiting_name]),
        "compute": (split.below_roof_compute_ns, "compute-bound work runs below its roof"),
        "memory": (split.below_roof_memory_ns, "memory-bound work runs below its roof"),
        "latency": (split.below_roof_latency_ns, "calls are too small to fill the device"),
        "unknown": (split.unmodelled_ns, "device work has no cost model or ceiling"),
    }
    kind = max(losses, key=lambda name: losses[name][0])
    lost_ns, why = losses[kind]
    if lost_ns == 0:
        kind = "compute"
        return Bottleneck(kind, "the whole step runs at its roof", 0)
    evidence = f"{lost_ns / split.step_ns:.0%} of the step ({lost_ns / 1e6:.3g} ms): {why}"
    return Bottleneck(kind, evidence, None if kind == "unknown" else lost_ns)
