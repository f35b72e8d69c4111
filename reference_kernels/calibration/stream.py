"""Streaming kernels on arrays larger than every cache: what DRAM sustains.

Bytes are counted as STREAM does (McCalpin, 1995): each array read or written once; the read that
a CPU's cache does before a write is not counted.
"""

import torch

from gpuprof.reference_kernels.calibration.probe import Call, Probe

_RANDOM_BLOCK = 2**20


def make_streams(device: str, array_bytes: int) -> tuple[Probe, ...]:
    """Copy, triad and read on float32 arrays of `array_bytes` each, three in all."""
    elements = array_bytes // 4
    moved = elements * 4
    first, second = (random_numbers(device, elements) for _ in range(2))
    out = torch.zeros(elements, device=device, dtype=torch.float32)

    def stream(name: str, traffic: str, call: Call, arrays: int) -> Probe:
        return Probe(
            kind="memory",
            name=f"DRAM {name}",
            call=call,
            amount=arrays * moved,
            method=f"{traffic}, {array_bytes / 2**20:.0f} MiB each",
            level="DRAM",
        )

    return (
        stream("copy", "one array read, one written", lambda: out.copy_(first), 2),
        stream(
            "triad",
            "two arrays read, one written",
            lambda: torch.add(first, second, alpha=3.0, out=out),
            3,
        ),
        stream("read", "one array read", lambda: torch.amax(first), 1),
    )


def random_numbers(device: str, elements: int) -> torch.Tensor:
    """Random numbers, repeated from a block: drawing them all takes longer than measuring."""
    generator = torch.Generator(device).manual_seed(0)
    block = torch.rand(
        min(elements, _RANDOM_BLOCK), device=device, dtype=torch.float32, generator=generator
    )
    return block.repeat(-(-elements // block.numel()))[:elements]
