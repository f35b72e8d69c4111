"""Whether what the driver says of a GPU's health costs a step, or puts its results in doubt."""

from collections.abc import Callable, Mapping
from typing import Final

from gpuprof.roofline.classes import COPY
from gpuprof.roofline.durations import duration
from gpuprof.roofline.settings.known import CostEvidence, KnownOfStep

# Watts are rounded by drivers.
_SAME_LIMIT: Final = 0.99
_POWER_CAP: Final = "software power cap"
# Transfers a second and lane by generation, in 1e9, times the share that is no coding (PCI Express
# Base Specification; from 6.0 on blocks of fixed size without it).
_PCIE_GB_PER_S: Final[Mapping[int, float]] = {
    1: 2.5 * 0.8 / 8,
    2: 5 * 0.8 / 8,
    3: 8 * 128 / 130 / 8,
    4: 16 * 128 / 130 / 8,
    5: 32 * 128 / 130 / 8,
    6: 64 / 8,
}


def _power_limit(known: KnownOfStep) -> CostEvidence | None:
    health, state = known.health, known.state
    if health is None or state is None or state.throttle_reasons is None:
        return None
    limit, default = health.power_limit_milliwatts, health.default_power_limit_milliwatts
    if limit is None or default is None or limit >= _SAME_LIMIT * default:
        return None
    if _POWER_CAP not in state.throttle_reasons:
        return None
    return _of_the_clock(known, f"{limit / 1e3:.0f} W of {default / 1e3:.0f} W by default")


def _thermal(known: KnownOfStep) -> CostEvidence | None:
    state = known.state
    if state is None or state.throttle_reasons is None:
        return None
    reasons = [reason for reason in state.throttle_reasons if reason != _POWER_CAP]
    if not reasons:
        return None
    degrees = state.temperature_celsius_maximum
    at = "" if degrees is None else f" at {degrees} degrees Celsius"
    return _of_the_clock(known, f"{', '.join(reasons)}{at}")


def _of_the_clock(known: KnownOfStep, reason: str) -> CostEvidence | None:
    """`reason` with the clock that it led to; None where the clock did not fall."""
    device, state, busy = known.device, known.state, known.exposed
    clock = None if state is None else state.sm_clock_mhz_median
    highest = None if device is None else device.maximum_sm_clock_mhz
    if clock is None or not highest or busy is None:
        return CostEvidence(f"during the timed steps: {reason}")
    gain_ns = round(busy.computing_ns * (1 - clock / highest))
    if not known.counts(gain_ns):
        return None
    return CostEvidence(
        f"during the timed steps: {reason}; SM clock {clock} MHz of {highest}",
        gain_ns,
        "if all computing followed the SM clock up to its highest",
    )


def _pcie(known: KnownOfStep) -> CostEvidence | None:
    health, state = known.health, known.state
    if health is None or state is None:
        return None
    used = _pcie_rate(state.pcie_generation, state.pcie_width)
    most = _pcie_rate(health.maximum_pcie_generation, health.maximum_pcie_width)
    if used is None or most is None or used >= most:
        return None
    exposed_ns = sum(
        transfer.exposed_ns
        for transfer in known.transfers
        if transfer.kind == COPY and "host" in transfer.what
    )
    exposed_ns //= known.profiled
    if not known.counts(exposed_ns):
        return None
    return CostEvidence(
        f"generation {state.pcie_generation} x{state.pcie_width} of "
        f"{health.maximum_pcie_generation} x{health.maximum_pcie_width}, and "
        f"{duration(exposed_ns)} of {known.whole_profiled} are exposed copies over it",
        round(exposed_ns * (1 - used / most)),
        "if the copies took the link's full rate",
    )


def _pcie_rate(generation: int | None, width: int | None) -> float | None:
    if generation is None or width is None or generation not in _PCIE_GB_PER_S:
        return None
    return _PCIE_GB_PER_S[generation] * width


def _nvlink(known: KnownOfStep) -> CostEvidence | None:
    health, exposed = known.health, known.exposed
    if health is None or not health.nvlinks_inactive or not health.nvlinks_active:
        # Without any the device has no bridge.
        return None
    if exposed is None or not known.counts(exposed.communication_ns):
        return None
    number = health.nvlinks_active + health.nvlinks_inactive
    return CostEvidence(
        f"{health.nvlinks_inactive} of {number} NVLinks are down, and "
        f"{duration(exposed.communication_ns)} of {known.whole_profiled} is exposed communication",
        round(exposed.communication_ns * health.nvlinks_inactive / number),
        "if communication took all links",
    )


def _memory_errors(known: KnownOfStep) -> CostEvidence | None:
    health = known.health
    if health is None:
        return None
    found = []
    if health.uncorrected_memory_errors:
        found.append(f"{health.uncorrected_memory_errors} uncorrected since the driver was loaded")
    if health.remapping_pending:
        found.append("a row waits to be remapped")
    if health.remapping_failed:
        found.append("a row could not be remapped")
    return CostEvidence("; ".join(found)) if found else None


def _other_processes(known: KnownOfStep) -> CostEvidence | None:
    health = known.health
    if health is None or not health.other_processes:
        return None
    return CostEvidence(f"{health.active_processes} processes had kernels at the end of the run")


def _affinity(known: KnownOfStep) -> CostEvidence | None:
    health, split = known.health, known.split
    if health is None or health.allowed_local_cpus != 0 or not health.allowed_cpus:
        return None
    if split is None or not known.counts(split.idle_ns):
        return None
    return CostEvidence(
        f"none of the {health.allowed_cpus} CPUs that the process may use is local to the GPU "
        f"({health.local_cpus}), and {duration(split.idle_ns)} of {split.whole} has no device "
        "work"
    )


KINDS: Final[Mapping[str, Callable[[KnownOfStep], CostEvidence | None]]] = {
    "power limit": _power_limit,
    "thermal": _thermal,
    "pcie": _pcie,
    "nvlink": _nvlink,
    "memory errors": _memory_errors,
    "other processes": _other_processes,
    "affinity": _affinity,
}
