"""The last allocation that failed: what was live then, and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors import memory_snapshot
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import ProcessInfo
from gpuprof.collectors.stacks import user_line
from gpuprof.roofline.memory.fragmentation import fragmentation
from gpuprof.roofline.memory.lifetimes import Lifetimes
from gpuprof.roofline.memory.moment import moment_of_blocks, moment_of_events
from gpuprof.roofline.memory_figures import (
    Fragmentation,
    MemoryKind,
    MemoryMoment,
    OutOfMemory,
)

# What torch raises; torch.cuda.OutOfMemoryError is another name of it.
_ERROR: Final = "OutOfMemoryError"
# Of what torch may use: what takes more is worth to be made smaller.
_MUCH: Final = 0.25
# Of the device: what others hold is in the way.
_OTHERS: Final = 0.1
_REMEDIES: Final[dict[MemoryKind, str]] = {
    "activations": "use smaller batches (and accumulate gradients), or checkpoint activations "
    "(torch.utils.checkpoint)",
    "parameters": "keep parameters in fewer bytes, or shard them over devices (FSDP)",
    "optimizer state": "shard the optimizer's state over devices, or use an optimizer that keeps "
    "less",
    "gradients": "give gradients back before the next forward pass "
    "(zero_grad with set_to_none=True), or shard them",
    "tensors": "let go of tensors that variables and lists of the program still hold, such as "
    "outputs and losses of earlier steps",
}
# Kinds whose remedy is that of another one.
_LIKE: Final[dict[MemoryKind, MemoryKind]] = {"backward": "activations", "workspace": "activations"}


@dataclass(frozen=True)
class DeviceEvents:
    """What the events of one device tell: its lifetimes, and their blocks with kinds."""

    lives: Lifetimes
    blocks: pl.DataFrame


def out_of_memory(
    capture: Capture, events: Mapping[int | None, DeviceEvents]
) -> OutOfMemory | None:
    """The last failure in `capture`, with what `events` by device tell of it; None without any."""
    failures = capture.out_of_memory.sort("time_ns")
    if failures.is_empty():
        return None
    last = failures.row(-1, named=True)
    device, time_ns = last["device"], last["time_ns"]
    at_device = pl.col("device").eq_missing(device)
    blocks = capture.memory_blocks.filter(at_device & (pl.col("moment") == "out of memory"))
    known = events.get(device)
    live, held = None, fragmentation(blocks)
    if not blocks.is_empty():
        begun = None if known is None else known.blocks
        live = moment_of_blocks(blocks, time_ns=time_ns, begun=begun)
    elif known is not None and capture.manifest.source == memory_snapshot.SOURCE:
        # Its history goes on without a gap to the snapshot, which is often taken at the failure.
        position = known.lives.position_at(time_ns)
        live = moment_of_events(known.lives, known.blocks, position, step=None)
        if position == len(known.lives.times_ns) - 1:
            held = fragmentation(capture.memory_blocks.filter(at_device))
        # Before it fails the allocator gives back what is free, after the last allocation.
        reserved = None if held is None else held.reserved_bytes
        live = msgspec.structs.replace(live, reserved_bytes=reserved)
    return OutOfMemory(
        device=device,
        asked_bytes=last["asked"],
        limit_bytes=last["limit"],
        free_bytes=last["free"],
        line=user_line(last["stack"] or ""),
        fatal=_ended_the_program(capture.processes[0]),
        failures=failures.height,
        live=live,
        fragmentation=held,
        advice=_advice(last["asked"], last["limit"], last["free"], held, live),
    )


def _ended_the_program(process: ProcessInfo) -> bool:
    return any(name.rpartition(".")[2] == _ERROR for name in process.exceptions)


def _advice(
    asked: int,
    limit: int | None,
    free: int | None,
    held: Fragmentation | None,
    live: MemoryMoment | None,
) -> tuple[str, ...]:
    """What to do, the likeliest first; a whole sentence each."""
    found = []
    if held is not None:
        unused = held.reserved_bytes - held.allocated_bytes - held.pending_bytes
        if unused >= asked:
            found.append(
                "Enough is reserved and unused, in pieces that are too small: set "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before torch is imported."
            )
    if limit and free is not None and free >= asked:
        found.append(
            "The device has enough free memory, which torch may not use: raise the limit that was "
            "set with set_per_process_memory_fraction."
        )
    elif limit and free is not None and held is not None:
        others = limit - free - held.reserved_bytes
        if others > _OTHERS * limit:
            found.append(
                f"{others / limit:.0%} of the device belong to other processes or to libraries "
                "beside torch: see nvidia-smi."
            )
    allocated = 0 if live is None else live.allocated_bytes
    usable = limit or allocated + asked
    if asked > _MUCH * usable:
        found.append(
            f"The one allocation is {asked / usable:.0%} of what torch may use: make smaller what "
            "it is for, such as the batch or the sequence, or do it in parts."
        )
    sizes: dict[MemoryKind, int] = {}
    for each in () if live is None else live.kinds:
        kind = _LIKE.get(each.kind, each.kind)
        sizes[kind] = sizes.get(kind, 0) + each.bytes
    for kind, size in sorted(sizes.items(), key=lambda item: -item[1]):
        if size > _MUCH * usable and kind in _REMEDIES:
            remedy = _REMEDIES[kind]
            share = f"{kind}: {size / usable:.0%} of what torch may use"
            found.append(f"{remedy[0].upper()}{remedy[1:]} ({share}).")
    return tuple(found)
