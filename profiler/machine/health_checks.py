"""The health of this machine's GPUs and CPU, and settings in force, for `gpuprof doctor`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from gpuprof.collectors.device_health import DeviceHealth
from gpuprof.collectors.live.fingerprint import collect_fingerprint
from gpuprof.collectors.live.nvml.health import device_health
from gpuprof.collectors.live.nvml.library import ask, visible_handles
from gpuprof.collectors.live.nvml.readings import plain_readings, plausible
from gpuprof.collectors.live.nvml.slowdowns import slowdown_reasons
from gpuprof.collectors.live.nvml.topology import LEGEND, topology
from gpuprof.collectors.settings import settings, values_in_force
from gpuprof.reports.machine.health import (
    cpus_text,
    memory_text,
    nvlink_text,
    power_text,
    processes_text,
    xid_text,
)
from gpuprof.roofline.machine.check import Check, State

_HEALTH: Final = "Health"
# Copied to the device while the link is looked at; a link that is idle is slow.
_COPIED_BYTES: Final = 1 << 26
_COPIES: Final = 30
# NVIDIA, "Xid Errors": what programs cause themselves (13 and 31 faults of their kernels, 43 a
# kernel that was stopped, 45 a program that ended), and not the hardware.
_OF_PROGRAMS: Final = frozenset({13, 31, 43, 45})


def health_checks(torch: Any) -> Iterator[Check]:
    """Each GPU's health, how the GPUs are connected, and what holds the CPU back."""
    found = device_health()
    readings = under_load(torch, [health.index for health in found])
    for health in found:
        yield from _device_checks(health, readings.get(health.index, {}))
    connections = topology()
    if connections:
        text = ", ".join(f"{one}-{other} {kind}" for (one, other), kind in connections.items())
        yield Check(_HEALTH, "GPU topology", "yes", text, LEGEND)
    yield from setting_checks()


def under_load(torch: Any, devices: Sequence[int]) -> dict[int, dict[str, int]]:
    """NVML's readings of each device while it is copied to, by column; none where it cannot be."""
    if torch is None:
        return {}
    found = {}
    for device in devices:
        try:
            host = torch.empty(_COPIED_BYTES, dtype=torch.uint8, pin_memory=True)
            there = torch.empty_like(host, device=f"cuda:{device}")
            for _ in range(_COPIES):
                there.copy_(host, non_blocking=True)
            readings = ask(_readings_of(device))
            torch.cuda.synchronize(device)
        # A device that is full or broken has no figures; the rest of the list is still wanted.
        except Exception:
            continue
        found[device] = readings or {}
    return found


def _readings_of(device: int) -> Callable[[Any], dict[str, int]]:
    def read(library: Any) -> dict[str, int]:
        found = {}
        for reading in plain_readings(library, visible_handles(library)[device]):
            try:
                value = reading.read()
            # Each reading fails on its own.
            except Exception:
                continue
            if plausible(value, reading.column):
                found[reading.column] = round(value)
        return found

    return read


def _device_checks(health: DeviceHealth, readings: dict[str, int]) -> Iterator[Check]:
    def check(name: str, text: str, problem: str) -> Iterator[Check]:
        if text:
            state: State = "partly" if problem else "yes"
            yield Check(_HEALTH, f"GPU {health.index} {name}", state, text, problem)

    lowered = (
        health.power_limit_milliwatts is not None
        and health.default_power_limit_milliwatts is not None
        and health.power_limit_milliwatts < health.default_power_limit_milliwatts
    )
    yield from check("power limit", power_text(health), remedy("power limit") if lowered else "")
    yield from check("clocks", *_clocks(readings))
    errors = health.uncorrected_memory_errors or health.remapping_pending or health.remapping_failed
    yield from check("memory", memory_text(health), remedy("memory errors") if errors else "")
    yield from check("PCIe link", *_pcie(health, readings))
    down = bool(health.nvlinks_active and health.nvlinks_inactive)
    yield from check("NVLink", nvlink_text(health), remedy("NVLink down") if down else "")
    others = (health.active_processes or 0) > 1
    yield from check(
        "processes", processes_text(health), remedy("other processes") if others else ""
    )
    if health.mig:
        yield Check(
            _HEALTH, f"GPU {health.index} MIG", "partly", "on", "a slice has no peaks of its own"
        )
    far = health.allowed_local_cpus == 0 and bool(health.allowed_cpus)
    yield from check("CPUs", cpus_text(health), remedy("CPU affinity") if far else "")
    broken = [number for number in health.xids or () if number not in _OF_PROGRAMS]
    xid_remedy = "see NVIDIA's list of Xid errors, and the kernel's log" if broken else ""
    yield from check("Xid messages", xid_text(health), xid_remedy)


def _clocks(readings: dict[str, int]) -> tuple[str, str]:
    clock, bits = readings.get("sm_clock_mhz"), readings.get("throttle_reasons")
    if clock is None or bits is None:
        return "", ""
    reasons = slowdown_reasons(bits)
    problem = remedy("slowed down by heat or hardware") if reasons else ""
    return f"{clock} MHz while copying, slowed down by {', '.join(reasons) or 'nothing'}", problem


def _pcie(health: DeviceHealth, readings: dict[str, int]) -> tuple[str, str]:
    generation, width = readings.get("pcie_generation"), readings.get("pcie_width")
    most, widest = health.maximum_pcie_generation, health.maximum_pcie_width
    if generation is None or width is None or most is None or widest is None:
        return "", ""
    text = f"generation {generation} x{width} while copying, {most} x{widest} at most"
    return text, remedy("PCIe link") if generation < most or width < widest else ""


def remedy(name: str) -> str:
    """What the table of settings says to do about one of its rows. Raises `StopIteration`."""
    return next(row.remedy for row in settings() if row.name == name)


def setting_checks() -> Iterator[Check]:
    """The settings in force, in this shell, that can cost."""
    fingerprint = collect_fingerprint(import_torch=True)
    values = values_in_force(fingerprint)
    found = [(row, value) for row in settings() if (value := row.slow_value(values)) is not None]
    for row, value in found:
        finding = f"{value}: {row.does}; costs {row.cost}"
        yield Check("Settings", row.name, "no" if row.alarming else "partly", finding, row.remedy)
    if not found:
        yield Check("Settings", "in force", "yes", "none that is known to cost")
