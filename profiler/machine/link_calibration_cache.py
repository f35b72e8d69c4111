"""What collectives take on this machine, kept in the cache folder: one file a kind of device.

Beside the calibrations of single devices, which `gpuprof calibrate` makes without torchrun.
"""

import hashlib
import re
from pathlib import Path

import msgspec

from gpuprof._version import __version__
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.collectors.files.writing import write_file
from gpuprof.collectors.link_calibration import CollectiveTimes, LinkCalibration
from gpuprof.profiler.machine.calibration_cache import cache_folder


def link_cache_file(device: str, torch_version: str) -> Path:
    """Where the collectives measured among devices called `device` are kept."""
    digest = hashlib.sha256("\n".join((device, torch_version, __version__)).encode())
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")[:40]
    return cache_folder() / f"links-{slug}-{digest.hexdigest()[:12]}.json"


def load_links(device: str, torch_version: str) -> LinkCalibration | None:
    """What is kept for devices called `device`; None where nothing readable is."""
    try:
        content = stored_content(link_cache_file(device, torch_version))
        return decode_stored(content, LinkCalibration)
    # RuntimeError: there is no home folder. ValueError: msgspec's errors, and invalid UTF-8.
    except (CaptureError, RuntimeError, ValueError):
        return None


def store_links(measured: LinkCalibration) -> Path | None:
    """Keep `measured`, and of what was kept what it did not measure. None where nothing can be."""
    known = load_links(measured.device, measured.torch)
    kept = () if known is None else known.collectives
    again = {_identity(one) for one in measured.collectives}
    joined = msgspec.structs.replace(
        measured,
        collectives=(
            *measured.collectives,
            *(one for one in kept if _identity(one) not in again),
        ),
    )
    try:
        file = link_cache_file(measured.device, measured.torch)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, msgspec.json.format(msgspec.json.encode(joined), indent=1))
    except (OSError, RuntimeError):
        return None
    return file


def _identity(one: CollectiveTimes) -> tuple[object, ...]:
    return one.collective, one.backend, one.ranks, one.hosts, one.algorithm
