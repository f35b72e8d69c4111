"""Measures collectives with all ranks that torchrun started, and keeps them."""

import os
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist

from gpuprof.collectors.link_calibration import CollectiveTimes, LinkCalibration
from gpuprof.collectors.live.fingerprint import collect_fingerprint
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.profiler.machine.link_calibration_cache import load_links, store_links
from gpuprof.reference_kernels.calibration.collectives import SIZES, measure_collectives
from gpuprof.reference_kernels.calibration.conditions import OtherWork

# Those that decide how NCCL sends.
_SETTINGS: Final = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
)


def calibrate_links(
    local_rank: int,
    *,
    on_cpu: bool,
    force: bool,
    progress: Callable[[str], None] = lambda _: None,
) -> LinkCalibration:
    """What these ranks measure together, or what is kept of as many where not `force`.

    `local_rank` is this process's GPU. The same on every rank; rank 0 keeps it. Makes and ends
    torch.distributed's default group, which must not be there before.
    """
    device = torch.device("cpu")
    if not on_cpu:
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if on_cpu else "nccl")
    try:
        fingerprint = collect_fingerprint()
        name = _device_name(fingerprint, device)
        known: list[Any] = [None if force else load_links(name, str(torch.__version__))]
        dist.broadcast_object_list(known, src=0, group=dist.new_group(backend="gloo"))
        kept: LinkCalibration | None = known[0]
        if kept is not None and any(one.ranks == dist.get_world_size() for one in kept.collectives):
            return kept
        return _measured(fingerprint, name, device, progress)
    finally:
        dist.destroy_process_group()


def _measured(
    fingerprint: Fingerprint, name: str, device: torch.device, progress: Callable[[str], None]
) -> LinkCalibration:
    others = OtherWork()
    found = measure_collectives(device, SIZES[device.type], progress)
    calibration = LinkCalibration(
        device=name,
        torch=str(torch.__version__),
        library=f"NCCL {fingerprint.nccl}" if device.type == "cuda" and fingerprint.nccl else "",
        collectives=found,
        settings=tuple(f"{name}={os.environ[name]}" for name in _SETTINGS if name in os.environ),
        # Of a CPU the other ranks are other programs.
        other_work=others.share() if device.type == "cuda" else None,
        left_out=_left_out(found, dist.get_world_size()),
    )
    if dist.get_rank() == 0:
        store_links(calibration)
    return calibration


def _left_out(found: tuple[CollectiveTimes, ...], ranks: int) -> tuple[str, ...]:
    if any(one.ranks == ranks for one in found):
        return ()
    return (f"collectives of {ranks} ranks: torch's profiler did not record all of their kernels",)


def _device_name(fingerprint: Fingerprint, device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return fingerprint.devices[0].name if fingerprint.devices else "CPU"
