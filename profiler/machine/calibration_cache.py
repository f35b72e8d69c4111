"""Calibrations kept in the user's cache folder, one file a device and its circumstances."""

import hashlib
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpuprof._version import __version__
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.collectors.files.writing import write_file
from gpuprof.collectors.manifest import Calibration, Device
from gpuprof.roofline.machine.quiet import why_not_kept, with_higher_rates

# Figures measured in another way are not those of this version.
_log = logging.getLogger(__name__)
_METHOD = "fastest undisturbed repeat"


def cache_file(device: Device, torch_version: str, threads: int | None) -> Path:
    """Where the calibration of `device` is kept, below $XDG_CACHE_HOME or ~/.cache.

    Rates depend on the device, on torch's libraries, on a CPU's threads and on how this version
    of gpuprof measures. `threads` counts for a CPU only.
    """
    parts = [
        device.name,
        device.uuid or "",
        str(device.multiprocessors),
        torch_version,
        f"{threads} {_METHOD}" if device.kind == "cpu" else "",
        __version__,
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    slug = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")[:40]
    return cache_folder() / f"calibration-{slug}-{digest}.json"


def is_empty() -> bool:
    """Whether no calibration is kept at all, which can be told without torch."""
    try:
        return not any(cache_folder().glob("calibration-*.json"))
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return True


def load_cached(device: Device, torch_version: str, threads: int | None) -> Calibration | None:
    """The calibration stored for `device`, or None where there is no readable one."""
    try:
        file = cache_file(device, torch_version, threads)
        content = stored_content(file)
        _log.info("ceilings measured here: %s", file)
        return decode_stored(content, Calibration)
    # RuntimeError: there is no home folder. ValueError: msgspec's errors, and invalid UTF-8.
    except (CaptureError, RuntimeError, ValueError) as error:
        _log.info("no ceilings measured here: %s", error)
        return None


def store(calibration: Calibration) -> Path | None:
    """Keep `calibration`. Returns its file, or None where the cache cannot be written."""
    try:
        file = cache_file(calibration.device, calibration.torch, calibration.threads)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, msgspec.json.format(msgspec.json.encode(calibration), indent=1))
    except (OSError, RuntimeError):
        return None
    return file


def calibrate_cached(
    device: Device, *, force: bool = False, progress: Callable[[str], None] = lambda _: None
) -> Calibration:
    """The stored calibration of `device` for this process's torch, measured now if need be.

    `force` measures again, and of a CPU keeps the higher rate of both. Figures from a busy machine
    are not kept, and a cache that cannot be written is no error: the next call measures again.
    """
    import torch

    from gpuprof.reference_kernels.calibration.measure import calibrate

    known = load_cached(device, str(torch.__version__), torch.get_num_threads())
    if known is not None and not force:
        return known
    measured = calibrate(device, progress)
    if why_not_kept(measured) is None:
        measured = with_higher_rates(measured, known)
        store(measured)
    return measured


def cache_folder() -> Path:
    """Where calibrations are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuprof"
