"""The history of one device in a snapshot -> rows of the tables allocations and out_of_memory.

Source of the entries: pytorch c10/cuda/CUDACachingAllocator.h, TraceEntry, and
torch/csrc/cuda/memory_snapshot.cpp. Sizes are those that were asked for, not those of blocks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuprof.collectors.memory_segments import Stacks, number

_RESERVES: Final = ("segment_alloc", "segment_map")
_RETURNS: Final = ("segment_free", "segment_unmap")


@dataclass
class AllocatorHistory:
    """What a device's entries tell, oldest first."""

    allocations: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)


def history_of(
    entries: Sequence[Mapping[str, Any]],
    segments: Iterable[Mapping[str, Any]],
    device: int,
    stacks: Stacks,
) -> AllocatorHistory:
    """The rows of `entries`, which end with the snapshot that listed `segments` of the device.

    How much was allocated and reserved after each follows from the end backwards. Raises as
    `gpuprof.collectors.memory_segments.block_rows`.
    """
    own = [segment for segment in segments if segment["device"] == device]
    reserved = sum(number(segment["total_size"]) for segment in own)
    allocated = sum(
        number(block.get("requested_size", block["size"]))
        for segment in own
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    )
    found = AllocatorHistory()
    for position in range(len(entries) - 1, -1, -1):
        entry = entries[position]
        action, size = entry["action"], number(entry["size"])
        # Before torch 2.2 entries have no time; they stand in order.
        time_ns = number(entry["time_us"]) * 1000 if "time_us" in entry else position
        row: dict[str, Any] = {"time_ns": time_ns}
        row |= {"device": device, "stack": stacks.text(entry)}
        if action in ("alloc", "free_requested"):
            change = size if action == "alloc" else -size
            row |= {"address": number(entry["addr"]), "bytes": change, "category": "device"}
            found.allocations.append({**row, "total": allocated, "reserved": reserved})
            allocated -= change
        elif action == "oom":
            free = number(entry["device_free"]) if "device_free" in entry else None
            found.failures.append({**row, "asked": size, "free": free})
        elif action in _RESERVES:
            reserved -= size
        elif action in _RETURNS:
            reserved += size
    found.allocations.reverse()
    found.failures.reverse()
    return found
