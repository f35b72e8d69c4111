"""The device of a bench."""

from typing import Any

import msgspec
import torch

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.live.fingerprint import collect_fingerprint, cpu_device
from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.reference_kernels.benching.timing import Clock, EventClock, HostClock


def torch_device(wanted: str | None, place: Ranks) -> torch.device:
    """The device to run on, made the current one. Raises `CommandError` where it is not there."""
    cuda: Any = torch.cuda
    available = bool(cuda.is_available())
    if wanted is None:
        wanted = f"cuda:{place.local_rank}" if available else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise CommandError(f"--device {wanted}: give cpu or cuda:0, ...", exit_code=2) from error
    if device.type == "cpu":
        return device
    if device.type != "cuda" or not available or (device.index or 0) >= cuda.device_count():
        names = ", ".join(["cpu", *(f"cuda:{i}" for i in range(cuda.device_count()))])
        raise CommandError(f"--device {wanted}: this machine has {names}", exit_code=2)
    device = torch.device("cuda", device.index or 0)
    cuda.set_device(device)
    return device


def fingerprint_with(device: torch.device) -> tuple[Fingerprint, int]:
    """This machine, and the position of `device` among its devices."""
    fingerprint = collect_fingerprint()
    wanted = (device.type, device.index or 0)
    for position, known in enumerate(fingerprint.devices):
        if ("cpu" if known.kind == "cpu" else "cuda", known.index) == wanted:
            return fingerprint, position
    # A machine's fingerprint names its GPUs; this bench leaves them alone.
    devices: tuple[Device, ...] = (*fingerprint.devices, cpu_device())
    return msgspec.structs.replace(fingerprint, devices=devices), len(devices) - 1


def clock_of(device: Device) -> Clock:
    """What times calls on `device`."""
    return HostClock() if device.kind == "cpu" else EventClock(device.l2_cache_bytes)
