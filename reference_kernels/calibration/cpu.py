"""The ceilings of a CPU: matrix products, memory, and each level of its caches.

The rate is that of the fastest repeat, of those that nobody disturbed. What the machine is too busy
for is refused: a rate that others lowered is no ceiling.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from gpuprof.collectors.live.cpu_caches import CacheLevel, cache_levels
from gpuprof.collectors.manifest import MeasuredCeiling
from gpuprof.reference_kernels.calibration import gemm
from gpuprof.reference_kernels.calibration.conditions import available_memory_bytes
from gpuprof.reference_kernels.calibration.probe import Call, Probe
from gpuprof.reference_kernels.calibration.stream import make_cache_probes, make_memory_probes
from gpuprof.reference_kernels.calibration.timing import spread
from gpuprof.reference_kernels.calibration.undisturbed import Repeats, undisturbed_repeats

# A product is faster in one size here, in another there.
_GEMM_SIZES = (256, 512, 1024, 2048)
# A product that would take longer is not made: the sizes before it are as fast.
_LONGEST_S = 0.25
_LEVEL = 0.05
# Where the smallest product takes longer, it is emulated: its rate is no ceiling.
_TOO_SLOW_S = 0.06
# A core that was idle takes some time to reach its clock.
_WARMING_S = 0.2
_LEAST_MEMORY_BYTES = 384 * 2**20
# Where the pages of an array lie decides how much of a cache it has: rates of one process differed
# by 8 % from those of the next. The fastest of a few arrays is the same each time.
_ALLOCATIONS = 4

_NOT_HERE = "GEMM {}: not on this device, or emulated"
# Where one figure was refused, none is kept, and it is not worth waiting long for the others.
_PATIENCE_S = 0.5
_SHORT_PATIENCE_S = 0.1

# A call and how many seconds it is worth.
MeasureRepeats = Callable[[Call, float], Repeats]


@dataclass
class CpuCeilings:
    """What was found so far."""

    ceilings: list[MeasuredCeiling] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    # Names of what the machine was too busy for.
    refused: list[str] = field(default_factory=list)
    repeats: int = 0
    # Repeats in which others had a core.
    disturbed: int = 0

    def repeats_of(self, probe: Probe, measure: MeasureRepeats) -> Repeats | None:
        """Repeats of `probe` that agree, or None."""
        measured = measure(probe.call, _SHORT_PATIENCE_S if self.refused else _PATIENCE_S)
        self.repeats += len(measured.seconds) + measured.disturbed
        self.disturbed += measured.disturbed
        return measured if measured.agree else None


def cpu_ceilings(
    progress: Callable[[str], None], measure: MeasureRepeats = undisturbed_repeats
) -> CpuCeilings:
    """Measure all ceilings of the CPU with torch's threads as they are."""
    found = CpuCeilings()
    _warm_up()
    for precision in gemm.CPU_PRECISIONS:
        progress(f"GEMM {precision}")
        with gemm.float32_products(tf32=False):
            _add_products(found, precision, measure)
    levels = cache_levels()
    for level, capacity_bytes in _reached_caches(levels):
        progress(level)
        # The largest set that surely fits, and one that fits where others share the cache.
        sets = (capacity_bytes // 2, capacity_bytes // 4) * _ALLOCATIONS
        in_each_size = (make_cache_probes(level, capacity_bytes, size) for size in sets)
        for probes in zip(*in_each_size, strict=True):
            _add_fastest(found, probes, measure)
    memory_bytes = _memory_bytes(levels)
    if memory_bytes is None:
        found.left_out.append("DRAM: not enough free memory for arrays larger than the caches")
        return found
    for probe in make_memory_probes(memory_bytes):
        progress(probe.name)
        _add_fastest(found, (probe,), measure)
    return found


def _add_products(found: CpuCeilings, precision: str, measure: MeasureRepeats) -> None:
    sizes: list[MeasuredCeiling] = []
    for size in _GEMM_SIZES:
        try:
            probe = _product(precision, size)
            repeats = found.repeats_of(probe, measure)
        # What a build of torch does not have, it reports in these ways.
        except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError):
            found.left_out.append(_NOT_HERE.format(precision))
            return
        if repeats is None:
            if not _levelled_off(sizes):
                found.refused.append(probe.name)
                return
            break
        seconds = min(repeats.seconds)
        if not sizes and seconds > _TOO_SLOW_S:
            found.left_out.append(_NOT_HERE.format(precision))
            return
        sizes.append(_ceiling(probe, repeats))
        if seconds * 2**3 > _LONGEST_S:
            break
    found.ceilings.append(max(sizes, key=lambda ceiling: ceiling.rate))


def _levelled_off(sizes: Sequence[MeasuredCeiling]) -> bool:
    """Whether the last of the growing `sizes` was hardly faster than the one before.

    A large product takes longer than other programs leave the cores alone: then the largest that
    could be measured is the ceiling, where a larger one would not be faster.
    """
    return len(sizes) > 1 and sizes[-1].rate <= sizes[-2].rate * (1 + _LEVEL)


def _product(precision: str, size: int) -> Probe:
    return Probe(
        kind="compute",
        name=f"GEMM {precision}",
        call=gemm.make_gemm("cpu", precision, size),
        amount=gemm.gemm_flops(size),
        method=f"{size} x {size}, random data",
        precision=precision,
    )


def _add_fastest(found: CpuCeilings, probes: tuple[Probe, ...], measure: MeasureRepeats) -> None:
    """The fastest of `probes`, which are one kernel in several sizes."""
    sizes: list[MeasuredCeiling] = []
    for probe in probes:
        repeats = found.repeats_of(probe, measure)
        if repeats is None:
            found.refused.append(probe.name)
            return
        sizes.append(_ceiling(probe, repeats))
    found.ceilings.append(max(sizes, key=lambda ceiling: ceiling.rate))


def _ceiling(probe: Probe, repeats: Repeats) -> MeasuredCeiling:
    seconds = min(repeats.seconds)
    method = probe.method
    if probe.allocated:
        with_allocate = (probe.amount + probe.allocated) / seconds
        method += f"; {with_allocate / 1e9:.3g} GB/s with the write-allocate"
    return MeasuredCeiling(
        kind=probe.kind,
        name=probe.name,
        rate=probe.amount / seconds,
        spread=spread([1 / each for each in repeats.seconds]),
        repeats=len(repeats.seconds),
        precision=probe.precision,
        level=probe.level,
        capacity_bytes=probe.capacity_bytes,
        method=method,
    )


def _reached_caches(levels: tuple[CacheLevel, ...]) -> Iterator[tuple[str, int]]:
    """Name and bytes of the caches behind the first level that this many threads are near to.

    What fits in the first level takes less time than the operator that works on it.
    """
    threads = torch.get_num_threads()
    reached_before = 0
    for level in levels:
        reached = level.reached_bytes(threads)
        if level.level > 1 and reached > reached_before:
            yield f"L{level.level}", reached
        reached_before = max(reached_before, reached)


def _memory_bytes(levels: tuple[CacheLevel, ...]) -> int | None:
    """Bytes of all arrays; None where memory is too small to leave the caches behind."""
    cache_bytes = max((level.total_bytes for level in levels), default=0)
    # STREAM's rule, of all that a kernel touches before it comes to the same data again.
    wanted = max(_LEAST_MEMORY_BYTES, 4 * cache_bytes)
    available = available_memory_bytes()
    size = wanted if available is None else min(wanted, available // 2)
    return size if size > 2 * cache_bytes else None


def _warm_up() -> None:
    factor = torch.ones(_GEMM_SIZES[0], _GEMM_SIZES[0])
    began = time.perf_counter()
    while time.perf_counter() - began < _WARMING_S:
        torch.mm(factor, factor)
