"""The history of one device in a snapshot -> rows of the tables allocations and out_of_memory.

Source of the entries: pytorch c10/cuda/CUDACachingAllocator.h, TraceEntry, and
torch/csrc/cuda/memory_snapshot.cpp. Sizes are those that were asked for, not those of blocks.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpuprof.collectors.memory_segments import Stacks, number

_RESERVES: Final = ("segment_alloc", "segment_map")
_RETURNS: Final = ("segment_free", "segment_unmap")


def history_of(
    entries: Sequence[Mapping[str, Any]],
    stacks: Stacks,
    *,
    device: int,
    allocated: int,
    reserved: int,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of `entries` with the names of their tables, the last first.

    `allocated` and `reserved` are the bytes of the device in the end; those after each entry follow
    from there backwards. Raises as `gpuprof.collectors.memory_segments.block_rows`.
    """
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
            yield "allocations", {**row, "total": allocated, "reserved": reserved}
            allocated -= change
        elif action == "oom":
            free = number(entry["device_free"]) if "device_free" in entry else None
            yield "out_of_memory", {**row, "asked": size, "free": free}
        elif action in _RESERVES:
            reserved -= size
        elif action in _RETURNS:
            reserved += size
