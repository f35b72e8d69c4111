"""What speaks against figures of an analysis, in sentences."""

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analysis import RooflinePoint, Utilization
from gpuprof.roofline.machine.ceilings import Roof, Source
from gpuprof.roofline.step_figures import DEVICE_CLOCK, StepTimes
from gpuprof.roofline.steps.settling import unlike_later_steps, unsettled
from gpuprof.roofline.steps.two_kinds import two_kinds
from gpuprof.roofline.steps.waiting_for_a_core import busy_machine
from gpuprof.roofline.utilization.weight_traffic import WeightTraffic, why_no_mbu
from gpuprof.roofline.work.meta_device import computes_nothing


def of_timed_steps(times: StepTimes) -> tuple[str, ...]:
    """What makes the timed steps other than those of the program on a quiet, settled machine."""
    busy = busy_machine(times.waiting_fraction)
    if busy is not None and times.clock != DEVICE_CLOCK:
        # Other programs come and go: steps that differ need no other reason.
        return (busy,)
    return sentences(
        busy,
        (unsettled(times.samples_ns) or two_kinds(times.samples_ns)) if times.timed else None,
        unlike_later_steps(times),
    )


def of_unequal_steps(times: StepTimes) -> tuple[str, ...]:
    """Where the steps did different work, which of them the shares are of."""
    if not times.unequal:
        return ()
    return (
        f"steps differ in work: {times.unequal}; shares of peaks are those of the profiled "
        "steps, whose time includes the profiler's",
    )


def on_meta(capture: Capture) -> tuple[str, ...]:
    """Where tensors are on torch's meta device, that nothing was computed."""
    if not computes_nothing(capture):
        return ()
    return ("the tensors are on torch's meta device: their shapes were worked out, nothing else",)


def without_mbu(
    use: Utilization | None, roof: Roof | None, traffic: WeightTraffic
) -> tuple[str, ...]:
    """Why there is no MBU, where there could be one."""
    if use is None or roof is None or roof.memory_rate() is None:
        return ()
    sentence = why_no_mbu(traffic)
    return () if sentence is None else (sentence,)


def over_roof(ops: tuple[RooflinePoint, ...], source: Source | None) -> tuple[str, ...]:
    """A sentence where compute-bound work exceeds its roof: cached data cannot explain that."""
    over = [
        point
        for point in ops
        if point.roof_fraction is not None
        and point.roof_fraction > 1
        and point.bottleneck.kind == "compute"
    ]
    if not over:
        return ()
    worst = max(over, key=lambda point: point.roof_fraction or 0)
    why = "peak or count wrong"
    if source == "measured":
        why = (
            "the machine was slower when that was measured (gpuprof calibrate --force measures it "
            "again), or the count is wrong"
        )
    which = f"{len(over)} operators are above their"
    if len(over) == 1:
        which = "1 operator is above its"
    return (
        f"{which} compute roof, {worst.name} at {worst.roof_fraction:.0%} of {worst.roof}: {why}",
    )


def sentences(*found: str | None) -> tuple[str, ...]:
    """Those of `found` that say something."""
    return tuple(sentence for sentence in found if sentence is not None)
