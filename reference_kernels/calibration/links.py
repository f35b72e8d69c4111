"""Copies over the links of a GPU: PCIe from and to page-locked memory, and to each peer."""

from collections.abc import Iterator
from typing import Any

import torch

from gpuprof.collectors.live.nvml.library import ask, visible_handles
from gpuprof.reference_kernels.calibration.probe import Call, Probe

_COPY_BYTES = 256 * 2**20


def make_link_probes(index: int) -> Iterator[Probe]:
    """Copies between host and `cuda:index` both ways, and from it to each peer it can reach."""
    size = f"{_COPY_BYTES // 2**20} MiB"
    here = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=f"cuda:{index}")
    host = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    for direction, to, origin in (("h2d", here, host), ("d2h", host, here)):
        yield Probe(
            kind="link",
            name=f"PCIe {direction}",
            call=_copier(to, origin),
            amount=_COPY_BYTES,
            method=f"{size}, page-locked",
            level=f"PCIe {direction}",
        )
    for peer in range(torch.cuda.device_count()):
        if peer == index or not torch.cuda.can_device_access_peer(index, peer):
            continue
        link = "NVLink" if _joined_by_nvlink(index, peer) else "peer"
        yield Probe(
            kind="link",
            name=f"{link} to cuda:{peer}",
            call=_copier(torch.empty_like(here, device=f"cuda:{peer}"), here),
            amount=_COPY_BYTES,
            method=f"{size} from cuda:{index}",
            level=link,
        )


def _copier(to: torch.Tensor, origin: torch.Tensor) -> Call:
    return lambda: to.copy_(origin, non_blocking=True)


def _joined_by_nvlink(index: int, peer: int) -> bool:
    """Whether NVML says that the two are joined by NVLink; False where it cannot tell."""

    def status_is_ok(library: Any) -> bool:
        handles = visible_handles(library)
        status = library.nvmlDeviceGetP2PStatus(
            handles[index], handles[peer], library.NVML_P2P_CAPS_INDEX_NVLINK
        )
        return bool(status == library.NVML_P2P_STATUS_OK)

    return ask(status_is_ok) or False
