"""What holds a whole step back."""

from gpuprof.roofline.analysis import Bottleneck
from gpuprof.roofline.classes import COMPUTE, LAUNCH, OTHER_RANK, UNKNOWN, bottleneck_class
from gpuprof.roofline.durations import duration
from gpuprof.roofline.step_figures import StepSplit

# The most that torch.profiler made a step longer: a launch-bound block on an H200 took 229 us
# without it and 538 us with it and shapes.
_LONGEST_STRETCH = 2.35


def classify_step(
    split: StepSplit | None, reason_unknown: str, *, others_gap_ns: int = 0
) -> Bottleneck:
    """The largest loss of a step.

    The profiler makes a step longer by what the host does in it, and so the time without device
    work. A gap of a profiled step therefore counts by what is left of it for certain. Waiting for
    another rank comes with its range where that rank may have waited for its own host, for up to
    `others_gap_ns` in a step.
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
    step = {"timed": "the step", "whole trace": "the trace"}.get(split.basis, "a profiled step")
    evidence = f"{lost_ns / split.step_ns:.0%} of {step} ({duration(lost_ns)}): {row.loss}"
    if kind == LAUNCH and certain_ns < gap_ns:
        evidence += f"; without the profiler for {duration(certain_ns)} to {duration(gap_ns)}"
    elif kind == OTHER_RANK and others_gap_ns and split.basis != "timed":
        least_ns = max(0, lost_ns - others_gap_ns)
        evidence += f"; without the profiler for {duration(least_ns)} to {duration(lost_ns)}"
    elif gap_ns > lost_ns:
        evidence += (
            "; the device also waits for the host, without the profiler for "
            f"{duration(certain_ns)} to {duration(gap_ns)}"
        )
    return Bottleneck(row.name, evidence, lost_ns if row.removable else None)


def certain_gap_ns(split: StepSplit) -> int:
    """How long the device waits for the host at least in a step without the profiler."""
    gap_ns = split.nanoseconds(LAUNCH)
    if split.basis == "timed":
        return gap_ns
    return min(gap_ns, max(0, round(split.step_ns / _LONGEST_STRETCH) - split.busy_ns))
