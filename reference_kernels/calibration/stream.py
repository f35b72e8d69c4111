"""Streaming kernels: what DRAM sustains on arrays larger than every cache, and caches on smaller.

Bytes are counted as STREAM does (McCalpin, 1995): each array read or written once. Where a CPU's
cache reads a line before it writes it, a kernel that writes another array than it reads moves more
than that: `Probe.allocated`. A kernel that works in place moves just what is counted.
"""

from collections.abc import Iterator
from itertools import cycle

import torch

from gpuprof.reference_kernels.calibration.probe import Call, Probe

_RANDOM_BLOCK = 2**20
_MIB = 2**20
# Of the CPU's DRAM: a call takes one, two or three of them.
_PARTS = 24
# An array begins at a line of the cache.
_ALIGNED = 16


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


def make_memory_probes(total_bytes: int) -> Iterator[Probe]:
    """In-place work, read, copy and triad of a CPU's DRAM on arrays of `total_bytes` together.

    A call takes the next part of each array, so that it is short. Before one is taken again all
    others were, which is `total_bytes`: its data is long out of the caches.
    """
    part = total_bytes // 4 // _PARTS
    parts = random_numbers("cpu", part * _PARTS).view(_PARTS, part).unbind()
    size = f"{total_bytes / _MIB:.0f} MiB in all"

    def probe(name: str, traffic: str, call: Call, arrays: int, *, allocated: int = 0) -> Probe:
        return Probe(
            kind="memory",
            name=f"DRAM {name}",
            call=call,
            amount=arrays * part * 4,
            method=f"{traffic}, {size}",
            level="DRAM",
            allocated=allocated,
        )

    reading = cycle(parts)
    in_place, read = (lambda: next(reading).mul_(1.0)), (lambda: torch.amax(next(reading)))
    yield probe("in-place", "one array read and written", in_place, 2)
    yield probe("read", "one array read", read, 1)
    halves, thirds = _PARTS // 2, _PARTS // 3
    pairs = cycle(zip(parts[:halves], parts[halves:], strict=True))

    def copy() -> torch.Tensor:
        source, target = next(pairs)
        return target.copy_(source)

    yield probe("copy", "one array read, one written", copy, 2, allocated=part * 4)
    triples = cycle(
        zip(parts[:thirds], parts[thirds : 2 * thirds], parts[2 * thirds :], strict=True)
    )

    def triad() -> torch.Tensor:
        left, right, target = next(triples)
        return torch.add(left, right, alpha=3.0, out=target)

    yield probe("triad", "two arrays read, one written", triad, 3, allocated=part * 4)


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

    whole, third = set_bytes // 4, set_bytes // 4 // 3 // _ALIGNED * _ALIGNED
    only = random_numbers("cpu", whole)
    yield probe("in-place", "one array read and written", lambda: only.mul_(1.0), 2 * 4 * whole)
    yield probe("read", "one array read", lambda: torch.amax(only), 4 * whole)
    first, second, out = only[: 3 * third].view(3, third).unbind()
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
