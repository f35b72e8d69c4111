"""Streaming kernels: what DRAM sustains on arrays larger than every cache, and caches on smaller.

Bytes are counted as STREAM does (McCalpin, 1995): each array read or written once. Where a CPU's
cache reads a line before it writes it, a kernel that writes another array than it reads moves more
than that: `Probe.allocated`. A kernel that works in place moves just what is counted.
"""

from collections.abc import Iterator

import torch

from gpuprof.reference_kernels.calibration.probe import Call, Probe

_RANDOM_BLOCK = 2**20
_MIB = 2**20


def make_streams(device: str, array_bytes: int) -> tuple[Probe, ...]:
    """Copy, triad and read of a GPU's DRAM on three float32 arrays of `array_bytes` each."""
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
            method=f"{traffic}, {array_bytes / _MIB:.0f} MiB each",
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


def make_memory_probes(array_bytes: int) -> Iterator[Probe]:
    """In-place work, read, copy and triad of a CPU's DRAM on arrays of `array_bytes` each."""
    elements = array_bytes // 4
    moved = elements * 4
    first = random_numbers("cpu", elements)
    size = f"{array_bytes / _MIB:.0f} MiB each"

    def probe(name: str, traffic: str, call: Call, arrays: int, *, other: bool = False) -> Probe:
        return Probe(
            kind="memory",
            name=f"DRAM {name}",
            call=call,
            amount=arrays * moved,
            method=f"{traffic}, {size}",
            level="DRAM",
            allocated=moved if other else 0,
        )

    yield probe("in-place", "one array read and written", lambda: first.mul_(1.0), 2)
    yield probe("read", "one array read", lambda: torch.amax(first), 1)
    out = torch.zeros(elements)
    copied = "one array read, one written"
    yield probe("copy", copied, lambda: out.copy_(first), 2, other=True)
    second = random_numbers("cpu", elements)
    added = "two arrays read, one written"
    triad = lambda: torch.add(first, second, alpha=3.0, out=out)  # noqa: E731
    yield probe("triad", added, triad, 3, other=True)


def make_cache_probes(level: str, capacity_bytes: int, set_bytes: int) -> Iterator[Probe]:
    """In-place work, read and triad on float32 arrays that are `set_bytes` together."""

    def probe(name: str, traffic: str, call: Call, moved: int) -> Probe:
        return Probe(
            kind="memory",
            name=f"{level} {name}",
            call=call,
            amount=moved,
            method=f"{traffic}, {set_bytes / _MIB:g} MiB in all",
            level=level,
            capacity_bytes=capacity_bytes,
        )

    whole, third = set_bytes // 4, set_bytes // 4 // 3
    only = random_numbers("cpu", whole)
    yield probe("in-place", "one array read and written", lambda: only.mul_(1.0), 2 * 4 * whole)
    yield probe("read", "one array read", lambda: torch.amax(only), 4 * whole)
    first, second, out = (random_numbers("cpu", third) for _ in range(3))
    yield probe(
        "triad",
        "two arrays read, one written",
        lambda: torch.add(first, second, alpha=3.0, out=out),
        3 * 4 * third,
    )


def random_numbers(device: str, elements: int) -> torch.Tensor:
    """Random numbers, repeated from a block: drawing them all takes longer than measuring."""
    generator = torch.Generator(device).manual_seed(0)
    block = torch.rand(
        min(elements, _RANDOM_BLOCK), device=device, dtype=torch.float32, generator=generator
    )
    return block.repeat(-(-elements // block.numel()))[:elements]
