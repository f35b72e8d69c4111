"""What removing a loss would gain in a step as it runs without the profiler."""

from collections.abc import Iterable

import msgspec

from gpuprof.roofline.analysis import Bottleneck, RooflinePoint
from gpuprof.roofline.step_figures import StepTimes
from gpuprof.roofline.steps.waiting_for_a_core import is_much


def in_an_unprofiled_step(verdict: Bottleneck, times: StepTimes, *, on_cpu: bool) -> Bottleneck:
    """`verdict` with a gain that such a step can have: never more than the step is long.

    Losses are of profiled steps. A GPU's work keeps its length under the profiler; a CPU's is
    stretched with the step, and so is the loss. As all parts alike, it would be shorter in the
    ratio of the steps; it may be that all of what the profiler added is in it, or nothing. So may
    all the time for which other programs had the core.
    """
    gain_ns, length_ns, profiled_ns = verdict.gain_ns, times.median_ns, times.profiled_mean_ns
    if times.unequal or not times.timed:
        length_ns = profiled_ns
    if gain_ns is None or not length_ns:
        return verdict
    if not on_cpu or not profiled_ns:
        return msgspec.structs.replace(verdict, gain_ns=min(gain_ns, length_ns))
    outside_ns = max(0, profiled_ns - length_ns)
    waiting = times.profiled_waiting_fraction
    if waiting is not None and is_much(waiting):
        outside_ns += round(waiting * profiled_ns)
    if not outside_ns:
        return msgspec.structs.replace(verdict, gain_ns=min(gain_ns, length_ns))
    ratio = min(1.0, length_ns / profiled_ns)
    return msgspec.structs.replace(
        verdict,
        gain_ns=min(round(gain_ns * ratio), length_ns),
        gain_range_ns=(
            min(max(0, gain_ns - outside_ns), length_ns),
            min(gain_ns, length_ns),
        ),
    )


def with_gains_of_a_step(
    points: Iterable[RooflinePoint], times: StepTimes, *, on_cpu: bool
) -> tuple[RooflinePoint, ...]:
    """`points` with the gains of `in_an_unprofiled_step`."""
    return tuple(
        msgspec.structs.replace(
            point, bottleneck=in_an_unprofiled_step(point.bottleneck, times, on_cpu=on_cpu)
        )
        for point in points
    )
