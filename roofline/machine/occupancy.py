"""How many blocks of a kernel fit on a multiprocessor at a time, and what keeps others out.

Source: NVIDIA, CUDA Occupancy Calculator (cuda_occupancy.h of the CUDA toolkit), which Nsight
Compute's "Theoretical Occupancy" follows. Barriers and clusters may allow fewer blocks: neither is
in a trace.
"""

import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

_WARP: Final = 32


class _Capability(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    versions: tuple[str, ...]
    warps: int
    blocks: int
    registers: int
    partitions: int
    shared_kib: int
    reserved_bytes: int
    shared_unit_bytes: int
    register_unit: int
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    capability: tuple[_Capability, ...]


@dataclass(frozen=True)
class Occupancy:
    """Of one kernel launch, on one multiprocessor."""

    # Blocks that fit at a time.
    blocks: int
    warps: int
    # Of the warps that it can hold.
    fraction: float
    # What allows no more blocks: "registers", "shared memory", "warps" or "blocks".
    limits: tuple[str, ...]

    def waves(self, grid_blocks: int, multiprocessors: int) -> float:
        """How many times the device is filled by `grid_blocks`."""
        return grid_blocks / (self.blocks * multiprocessors)


def occupancy(
    compute_capability: str | None,
    *,
    threads_per_block: int,
    registers_per_thread: int,
    shared_bytes: int,
) -> Occupancy | None:
    """The occupancy of a launch with `shared_bytes` of static and dynamic shared memory a block.

    None where the limits of the device are not known, and where no block fits.
    """
    known = _capabilities().get(compute_capability or "")
    if known is None or threads_per_block < 1:
        return None
    warps = math.ceil(threads_per_block / _WARP)
    allowed = {
        "warps": known.warps // warps,
        "blocks": known.blocks,
        "registers": _by_registers(known, warps, registers_per_thread),
        "shared memory": _by_shared_memory(known, shared_bytes),
    }
    blocks = min(allowed.values())
    if blocks < 1:
        return None
    limits = tuple(name for name, most in allowed.items() if most == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / known.warps, limits)


def _by_registers(known: _Capability, warps: int, registers_per_thread: int) -> int:
    """Each partition has a part of the registers, and blocks take warps of all of them alike."""
    if registers_per_thread < 1:
        return known.blocks
    of_a_warp = _multiple(registers_per_thread * _WARP, known.register_unit)
    of_partition = known.registers // known.partitions // of_a_warp
    return of_partition * known.partitions // _multiple(warps, known.partitions)


def _by_shared_memory(known: _Capability, shared_bytes: int) -> int:
    of_block = _multiple(shared_bytes + known.reserved_bytes, known.shared_unit_bytes)
    return known.shared_kib * 1024 // of_block if of_block else known.blocks


def _multiple(number: int, unit: int) -> int:
    return math.ceil(number / unit) * unit


@cache
def _capabilities() -> dict[str, _Capability]:
    text = files("gpuprof.roofline.machine").joinpath("occupancy.toml").read_bytes()
    rows = msgspec.toml.decode(text, type=_Table).capability
    return {version: row for row in rows for version in row.versions}
