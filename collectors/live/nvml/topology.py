"""How the GPUs of a machine are connected with each other."""

from collections.abc import Mapping
from typing import Any, Final

from gpuprof.collectors.live.nvml.library import answer, ask, text, visible_handles
from gpuprof.collectors.live.nvml.nvlinks import link_states

# NVML's levels of a common ancestor, as `nvidia-smi topo -m` calls them.
_LEVELS: Final[Mapping[int, str]] = {
    0: "same board",
    10: "PIX",
    20: "PXB",
    30: "PHB",
    40: "NODE",
    50: "SYS",
}
LEGEND: Final = (
    "NV# that many NVLinks, PIX one PCIe switch, PXB several, PHB the CPU's PCIe bridge, NODE "
    "within a NUMA node, SYS between NUMA nodes"
)
# NVML_NVLINK_DEVICE_TYPE_SWITCH
_SWITCH: Final = 2


def topology() -> dict[tuple[int, int], str]:
    """The connection of each pair of visible GPUs by CUDA's numbers, the smaller one first."""
    return ask(_pairs) or {}


def _pairs(library: Any) -> dict[tuple[int, int], str]:
    handles = {i: handle for i, handle in visible_handles(library).items() if handle is not None}
    remotes = {index: _remotes(library, handle) for index, handle in handles.items()}
    return {
        (first, second): _connection(library, handles, remotes, first, second)
        for first in handles
        for second in handles
        if first < second
    }


def _connection(
    library: Any,
    handles: Mapping[int, Any],
    remotes: Mapping[int, list[str]],
    first: int,
    second: int,
) -> str:
    address = answer(lambda: text(library.nvmlDeviceGetPciInfo(handles[second]).busId).lower())
    links = 0 if address is None else remotes[first].count(address)
    # Through a switch each link reaches every GPU that has some to it.
    links += min(remotes[first].count("switch"), remotes[second].count("switch"))
    if links:
        return f"NV{links}"
    level = answer(
        lambda: library.nvmlDeviceGetTopologyCommonAncestor(handles[first], handles[second])
    )
    return _LEVELS.get(level, "unknown") if isinstance(level, int) else "unknown"


def _remotes(library: Any, handle: Any) -> list[str]:
    """What each active NVLink leads to: a device's address, or "switch"."""
    up = (link for link, is_up in link_states(library, handle).items() if is_up)
    return [_remote(library, handle, link) for link in up]


def _remote(library: Any, handle: Any, link: int) -> str:
    kind = answer(lambda: library.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link))
    if kind == _SWITCH:
        return "switch"
    remote = answer(lambda: text(library.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
    return (remote or "unknown").lower()
