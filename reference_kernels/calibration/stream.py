"""Streaming kernels on arrays larger than every cache: what DRAM sustains.

Bytes are counted as STREAM does (McCalpin, 1995): each array read or written once; the read that
a CPU's cache does before a write is not counted.
"""

from dataclasses import dataclass

import torch

from gpuprof.reference_kernels.calibration.timing import Call

_RANDOM_BLOCK = 2**20


@dataclass(frozen=True)
class Stream:
    """One streaming kernel and the bytes that a call of it moves."""

    name: str
    # What a call reads and writes, for people.
    traffic: str
    call: Call
    bytes_moved: int


def make_streams(device: str, array_bytes: int) -> tuple[Stream, ...]:
    """Copy, triad and read on float32 arrays of `array_bytes` each, three in all."""
    elements = array_bytes // 4
    moved = elements * 4
    first, second = (_random(device, elements) for _ in range(2))
    out = torch.zeros(elements, device=device, dtype=torch.float32)
    return (
        Stream("copy", "one array read, one written", lambda: out.copy_(first), 2 * moved),
        Stream(
            "triad",
            "two arrays read, one written",
            lambda: torch.add(first, second, alpha=3.0, out=out),
            3 * moved,
        ),
        Stream("read", "one array read", lambda: torch.amax(first), moved),
    )


def _random(device: str, elements: int) -> torch.Tensor:
    """Random numbers, repeated from a block: drawing them all takes longer than measuring."""
    generator = torch.Generator(device).manual_seed(0)
    block = torch.rand(
        min(elements, _RANDOM_BLOCK), device=device, dtype=torch.float32, generator=generator
    )
    return block.repeat(-(-elements // block.numel()))[:elements]
