"""What a slow step had more of than an ordinary one, by what was read at its ends."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gpuprof.collectors.watched_steps import WatchedStep
from gpuprof.roofline.length_distribution import common_period
from gpuprof.roofline.slow_step_figures import CauseTotal, SlowStep, StepDifference
from gpuprof.roofline.steps.device_readings import DeviceReading

GARBAGE_COLLECTION: Final = "garbage collection"
WAITING_FOR_A_CORE: Final = "waiting for a core"
DATA_LOADER: Final = "data loader"
BLOCKED: Final = "blocked on the host"
HOST_CODE: Final = "more work of the host"
HOST: Final = "the host"
HOST_OR_DEVICE: Final = "the host, or its wait for the device"
DEVICE_CLOCK: Final = "lower device clock"
DEVICE_WORK: Final = "longer device work"

# Clocks closer than this are the same.
_SAME_CLOCK: Final = 0.02


@dataclass(frozen=True)
class OrdinaryStep:
    """The medians of ordinary steps; None where they are not known of all."""

    length_ns: int
    host_ns: int
    processor_ns: int | None
    run_delay_ns: int | None
    garbage_collection_ns: int | None
    loader_ns: int | None
    sm_clock_mhz: int | None


def ordinary_step(
    steps: Sequence[WatchedStep], length_ns: int, sm_clock_mhz: int | None
) -> OrdinaryStep:
    """The medians over `steps`, of which there is at least one."""
    return OrdinaryStep(
        length_ns=length_ns,
        host_ns=round(median(step.host_ns for step in steps)),
        processor_ns=_median(step.processor_ns for step in steps),
        run_delay_ns=_median(step.run_delay_ns for step in steps),
        garbage_collection_ns=_median(step.garbage_collection_ns for step in steps),
        loader_ns=_median(step.loader_ns for step in steps),
        sm_clock_mhz=sm_clock_mhz,
    )


def differences(
    step: WatchedStep,
    length_ns: int,
    ordinary: OrdinaryStep,
    device: DeviceReading,
    *,
    on_device: bool,
) -> tuple[StepDifference, ...]:
    """Why a step of `length_ns` was longer, in parts that add up to no more than that.

    A host that is late lengthens its own interval as much as the device's. So where the host's
    interval did not grow by half of the length or more, the device is the cause.
    """
    longer_ns = length_ns - ordinary.length_ns
    if longer_ns <= 0:
        return ()
    found = list(_by_clock(longer_ns, ordinary, device))
    left_ns = longer_ns - sum(part.longer_ns for part in found)
    if on_device and step.host_ns - ordinary.host_ns < longer_ns / 2:
        found.append(StepDifference(DEVICE_WORK, left_ns, _same_clock(ordinary, device)))
    else:
        found += _of_the_host(step, left_ns, ordinary, on_device=on_device)
    return tuple(sorted((part for part in found if part.longer_ns), key=lambda p: -p.longer_ns))


def _of_the_host(
    step: WatchedStep, left_ns: int, ordinary: OrdinaryStep, *, on_device: bool
) -> Iterable[StepDifference]:
    """What is most specific comes first, and what it explains is explained.

    A collection may happen in a loader, and both while waiting for a core. What the thread ran
    itself is last: CUDA lets a thread that waits for the device run.
    """
    parts = (
        (GARBAGE_COLLECTION, _more(step.garbage_collection_ns, ordinary.garbage_collection_ns)),
        (WAITING_FOR_A_CORE, _more(step.run_delay_ns, ordinary.run_delay_ns)),
        (DATA_LOADER, _more(step.loader_ns, ordinary.loader_ns)),
        (BLOCKED, _more(_blocked_ns(step), _ordinarily_blocked_ns(ordinary))),
    )
    for cause, more_ns in parts:
        part_ns = min(more_ns, left_ns)
        yield StepDifference(cause, part_ns)
        left_ns -= part_ns
    if step.processor_ns is None:
        yield StepDifference(HOST, left_ns)
    elif on_device:
        yield StepDifference(HOST_OR_DEVICE, left_ns)
    else:
        yield StepDifference(HOST_CODE, left_ns)


def _blocked_ns(step: WatchedStep) -> int | None:
    if step.processor_ns is None or step.run_delay_ns is None:
        return None
    return step.host_ns - step.processor_ns - step.run_delay_ns


def _ordinarily_blocked_ns(ordinary: OrdinaryStep) -> int | None:
    if ordinary.processor_ns is None or ordinary.run_delay_ns is None:
        return None
    return max(0, ordinary.host_ns - ordinary.processor_ns - ordinary.run_delay_ns)


def _by_clock(
    longer_ns: int, ordinary: OrdinaryStep, device: DeviceReading
) -> Iterable[StepDifference]:
    clock, usual = device.sm_clock_mhz, ordinary.sm_clock_mhz
    if clock is None or not usual or clock >= usual * (1 - _SAME_CLOCK):
        return
    why = f": {', '.join(device.slowed_by)}" if device.slowed_by else ""
    # No more than if all of an ordinary step followed the SM clock.
    by_clock_ns = min(longer_ns, round(ordinary.length_ns * (usual / clock - 1)))
    yield StepDifference(DEVICE_CLOCK, by_clock_ns, f"{clock} MHz instead of {usual}{why}")


def _same_clock(ordinary: OrdinaryStep, device: DeviceReading) -> str:
    clock, usual = device.sm_clock_mhz, ordinary.sm_clock_mhz
    if clock is None or not usual or abs(clock / usual - 1) > _SAME_CLOCK:
        return ""
    return f"at {clock} MHz, as usual"


def cause_totals(steps: Iterable[SlowStep]) -> tuple[CauseTotal, ...]:
    """The causes of `steps` together, the largest first."""
    longer_ns: Counter[str] = Counter()
    count: Counter[str] = Counter()
    led: dict[str, list[int]] = {}
    for step in steps:
        if step.differences:
            led.setdefault(step.differences[0].cause, []).append(step.index)
        for part in step.differences:
            longer_ns[part.cause] += part.longer_ns
            count[part.cause] += 1
    return tuple(
        CauseTotal(cause, ns, count[cause], common_period(led.get(cause, ())))
        for cause, ns in longer_ns.most_common()
    )


def _more(value: int | None, usual: int | None) -> int:
    """By how much `value` is larger; 0 where either is not known, as nothing is explained then."""
    return 0 if value is None or usual is None else max(0, value - usual)


def _median(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(median(known)) if known else None
