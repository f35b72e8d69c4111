"""What holds a whole step back."""

from gpuprof.roofline.analysis import Bottleneck
from gpuprof.roofline.classes import COMPUTE, OTHER_RANK, UNKNOWN, bottleneck_class
from gpuprof.roofline.durations import duration
from gpuprof.roofline.step_figures import StepSplit


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
    losses = {part.kind: part for part in split.parts if bottleneck_class(part.kind).loss}
    gaps = [part for part in losses.values() if part.least_ns is not None]
    gap_ns = sum(part.nanoseconds for part in gaps)
    certain_ns = sum(part.certain_ns for part in gaps)
    kind = max(losses, key=lambda name: losses[name].certain_ns, default=UNKNOWN)
    if gap_ns and not losses[kind].certain_ns:
        # Nothing is lost for certain, and this may be.
        kind = max(gaps, key=lambda part: part.nanoseconds).kind
    lost_ns = losses[kind].nanoseconds if losses else 0
    if lost_ns == 0:
        return Bottleneck(COMPUTE, "the whole step runs at its roof", 0)
    row = bottleneck_class(kind)
    evidence = f"{lost_ns / split.step_ns:.0%} of {split.whole} ({duration(lost_ns)}): {row.loss}"
    least_ns = losses[kind].certain_ns
    if least_ns < lost_ns:
        evidence += f"; without the profiler for {duration(least_ns)} to {duration(lost_ns)}"
    elif kind == OTHER_RANK and others_gap_ns and split.basis != "timed":
        least_ns = max(0, lost_ns - others_gap_ns)
        evidence += f"; without the profiler for {duration(least_ns)} to {duration(lost_ns)}"
    elif losses[kind].least_ns is None and gap_ns > lost_ns:
        evidence += (
            "; the device also waits for the host, without the profiler for "
            f"{duration(certain_ns)} to {duration(gap_ns)}"
        )
    return Bottleneck(row.name, evidence, lost_ns if row.removable else None)
