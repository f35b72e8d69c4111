"""Segments of torch's CUDA allocator -> rows of the table memory_blocks.

Source of the fields: pytorch torch/csrc/cuda/Module.cpp, THCPModule_memorySnapshot, and
torch/csrc/cuda/memory_snapshot.cpp.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

_STATES: Final = {
    "active_allocated": "allocated",
    "active_pending_free": "pending free",
    "active_awaiting_free": "pending free",
    "inactive": "free",
}


def block_rows(
    segments: Iterable[Mapping[str, Any]], *, moment: str, time_ns: int
) -> list[dict[str, Any]]:
    """One row a block of `segments`, as a snapshot lists them.

    Raises `KeyError`, `TypeError` or `AttributeError` where they have another form.
    """
    rows = []
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            size = block["size"]
            rows.append(
                {
                    "time_ns": time_ns,
                    "moment": moment,
                    "device": segment["device"],
                    # Before torch 2.2 blocks have no address; they stand in order.
                    "address": block.get("address", address),
                    "bytes": size,
                    "requested": block.get("requested_size"),
                    "state": _STATES[block["state"]],
                    "segment": segment["address"],
                    "segment_bytes": segment["total_size"],
                    "stack": stack_text(block.get("frames") or ()),
                }
            )
            address += size
    return rows


def stack_text(frames: Iterable[Mapping[str, Any]]) -> str | None:
    """Frames, innermost first, as the tables have them; None without any."""
    lines = [f"{frame['filename']}:{frame['line']} {frame['name']}" for frame in frames]
    return "\n".join(lines) or None
