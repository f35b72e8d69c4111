"""Whether the device took longer for its work in the timed steps than in the profiled ones.

Work is seen in profiled steps, time is taken from others. At its power limit a GPU lowers its clock
under load, and raises it in the pause before the profiled steps: the same work is then shorter in
these. What the timed step is longer by is no waiting for the host.
"""

from typing import Final

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import DeviceState
from gpuprof.roofline.durations import duration
from gpuprof.roofline.step_figures import DEVICE_CLOCK, Exposed, StepSplit, StepTimes
from gpuprof.roofline.steps.stretch import Stretch

# A host that queues a step in less of its time is ahead: the device never waits for it.
_AHEAD: Final = 0.9
# Of the step: what is worth a sentence.
_NOTABLE: Final = 0.03


def slower_by_ns(
    times: StepTimes,
    stretch: Stretch,
    use: Exposed,
    *,
    state: DeviceState | None,
    device: Device | None,
) -> int:
    """By how much the work of `use` was longer in a timed step than in one of `stretch`.

    Where the host was ahead the device never waited for it, and all of the step is its work, with
    what it takes from one kernel to the next. Else the profiler only adds to what is waited for, so
    no more of the timed step is waiting than of a profiled one; the rest is work as far as the
    clock accounts for it. 0 where no steps were timed on the device.
    """
    if times.clock != DEVICE_CLOCK or times.median_ns is None or not times.timed:
        return 0
    others_ns = use.busy_ns + use.other_devices_ns
    if times.host_median_ns is not None and times.host_median_ns < _AHEAD * times.median_ns:
        return max(0, times.median_ns - others_ns)
    longer_ns = max(0, times.median_ns - max(others_ns, stretch.mean_ns))
    return min(longer_ns, round(use.busy_ns * (_slowest(state, device) - 1)))


def slower_warning(split: StepSplit | None) -> str | None:
    """A sentence where that is much of the step."""
    if split is None or split.slower_ns < _NOTABLE * split.step_ns:
        return None
    return (
        f"the device took {duration(split.slower_ns)} longer for the same work in a timed step "
        "than in a profiled one, as it does where it lowers its clock at its power limit, or from "
        "one kernel to the next; the host was not waited for, so that time counts to the work"
    )


def _slowest(state: DeviceState | None, device: Device | None) -> float:
    """How often longer the clock that was seen makes work than the highest clock does."""
    if state is None or device is None or not state.sm_clock_mhz_median:
        return 1.0
    highest = state.profiled_sm_clock_mhz_median or device.maximum_sm_clock_mhz
    return 1.0 if highest is None else max(1.0, highest / state.sm_clock_mhz_median)
