"""The device of a process and the roofs that its work is compared with."""

from gpuprof.collectors.manifest import Device, ProcessInfo
from gpuprof.roofline.machine.ceilings import (
    Ceiling,
    Roof,
    Source,
    datasheet_ceilings,
    measured_ceilings,
)
from gpuprof.roofline.machine.devices import find_spec
from gpuprof.roofline.machine.quiet import busy_sentences
from gpuprof.roofline.points.points import Machine
from gpuprof.roofline.step_figures import Exposed


def device_of(process: ProcessInfo) -> Device | None:
    """The device that did the work of `process`; None where none is known."""
    devices = process.fingerprint.devices
    return devices[process.device] if process.device < len(devices) else None


def ceilings_of(
    device: Device | None, process: ProcessInfo
) -> tuple[tuple[Ceiling, ...], tuple[str, ...]]:
    """The ceilings known for `device`, and what speaks against them or why there are none."""
    found: tuple[Ceiling, ...] = ()
    notes: tuple[str, ...] = ()
    if device is not None and device.kind != "cpu":
        match = find_spec(device)
        if match.spec is not None:
            found += datasheet_ceilings(match.spec)
        else:
            notes += (match.reason,)
    if process.calibration is not None and device is not None:
        if process.calibration.device.name == device.name:
            found += measured_ceilings(process.calibration)
            notes += busy_sentences(process.calibration)
    return found, notes


def roofs_of_devices(
    process: ProcessInfo, uses: tuple[Exposed, ...], machine: Machine, source: Source | None
) -> tuple[Roof, ...]:
    """The roofs of all devices of the process that compute; none where one of them has none."""
    if machine.roof is None or source is None:
        return ()
    roofs = [machine.roof]
    by_index = {device.index: device for device in process.fingerprint.devices}
    for use in uses:
        main = machine.device is None or use.device in (None, machine.device.index)
        if main or not use.computing_ns:
            continue
        # A trace that names one device of several means that the others are like it.
        device = by_index.get(use.device, machine.device) if use.device is not None else None
        ceilings, _ = ceilings_of(device, process)
        roofs.append(Roof(tuple(each for each in ceilings if each.source == source), source))
    return tuple(roofs) if all(roof.ceilings for roof in roofs) else ()
