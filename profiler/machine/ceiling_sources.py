"""A device's ceilings by what names it: a name of the device table, or a file of calibrations."""

from pathlib import Path
from typing import NamedTuple, TypeVar

from gpuprof.collectors.errors import CaptureError, CommandError, problem_of
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.collectors.link_calibration import LinkCalibration
from gpuprof.reports.json_answers.of_machines import DeviceCalibrations
from gpuprof.roofline.machine.ceilings import Roof, datasheet_ceilings, measured_ceilings
from gpuprof.roofline.machine.devices import Lookup, find_meant

_Decoded = TypeVar("_Decoded")


class NamedRoof(NamedTuple):
    """A device, its ceilings and its memory; None where it comes with several sizes."""

    name: str
    roof: Roof
    memory_bytes: int | None


def find_named(name: str) -> Lookup:
    """The row of the device table that a person means by `name`."""
    amd = "instinct" in name.lower() or "amd" in name.lower()
    return find_meant(name, "hip" if amd else "cuda")


def datasheet_roof(name: str) -> NamedRoof:
    """What the vendor promises for the device called `name`. Raises `CommandError` (exit 2)."""
    lookup = find_named(name)
    if lookup.spec is None:
        raise CommandError(f"--device: {lookup.reason}", exit_code=2)
    sizes = lookup.spec.memory_gib
    memory = sizes[0] * 2**30 if len(sizes) == 1 else None
    roof = Roof(datasheet_ceilings(lookup.spec), "datasheet")
    return NamedRoof(lookup.spec.name, roof, memory)


def calibrated_links(path: Path) -> LinkCalibration:
    """What `torchrun ... gpuprof calibrate --json` wrote. Raises `CommandError` (exit 2)."""
    return _decoded(path, LinkCalibration)


def calibrated_roof(path: Path) -> NamedRoof:
    """The first GPU of a file that `gpuprof calibrate --json` wrote.

    Raises `CommandError` (exit 2) where the file cannot be read or has no GPU.
    """
    found = _decoded(path, DeviceCalibrations).calibrations
    gpu = next((each for each in found if each.device.kind != "cpu"), None)
    if gpu is None:
        raise CommandError(f"{path} has no calibration of a GPU", exit_code=2)
    roof = Roof(measured_ceilings(gpu), "measured")
    return NamedRoof(gpu.device.name, roof, gpu.device.total_memory_bytes)


def _decoded(path: Path, kind: type[_Decoded]) -> _Decoded:
    try:
        return decode_stored(stored_content(path), kind)
    except CaptureError as error:
        raise CommandError(str(error), exit_code=2) from None
    # msgspec's errors, and invalid UTF-8.
    except ValueError as error:
        message = f"{path} is no such calibration: {problem_of(error)}"
        raise CommandError(message, exit_code=2) from None
