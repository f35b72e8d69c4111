"""How long one load takes at each level of a GPU's memory, by chains of loads in CUDA C++.

With the bandwidth of the level that tells how many bytes must be under way at a time to reach it
(Little's law).
"""

from functools import cache
from importlib.resources import files
from typing import Final

import numpy as np
import torch

from gpuprof.reference_kernels.calibration.timing import time_repeats
from gpuprof.reference_kernels.nvrtc import (
    CompiledProgram,
    CudaKernel,
    architecture_of,
    compile_source,
)

# The largest unit in which caches of NVIDIA's GPUs fetch.
_LINE_BYTES: Final = 128
# Far below what L1 holds.
_L1_BYTES: Final = 8 << 10
# Of L2: in each half of one that is split.
_L2_SHARE: Final = 8
# Of L2: what a chain through DRAM is longer than.
_DRAM_SHARE: Final = 8
_LEAST_DRAM_BYTES: Final = 256 << 20
_HOPS: Final = 1 << 14
_REPEATS: Final = 5
_REPEAT_S: Final = 0.02


def memory_latencies(device: torch.device, l2_cache_bytes: int | None) -> dict[str, float]:
    """Nanoseconds of one load by level: shared, L1, and where the size of L2 is known L2 and DRAM.

    Raises `MissingDependencyError` without the extra `cuda`, and `CompilationError`.
    """
    program = _compiled(architecture_of(device))
    place = torch.zeros(1, device=device, dtype=torch.int32)
    found = {"shared": _nanoseconds(CudaKernel(program, "chase_shared"), place)}
    chains = {"L1": ("chase_l1", _L1_BYTES)}
    if l2_cache_bytes:
        chains["L2"] = ("chase_past_l1", l2_cache_bytes // _L2_SHARE)
        dram_bytes = max(l2_cache_bytes * _DRAM_SHARE, _LEAST_DRAM_BYTES)
        chains["DRAM"] = ("chase_past_l1", dram_bytes)
    for level, (kernel, size) in chains.items():
        # The lines must live until the last call has ended.
        lines, start = make_chain(device, size)
        found[level] = _nanoseconds(CudaKernel(program, kernel), start)
        del lines
    return found


def make_chain(device: torch.device, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`size` bytes whose lines each hold the address of another one, in one cycle through all in
    random order; and the address of the first, as int64 of shape (1,)."""
    number, words = size // _LINE_BYTES, _LINE_BYTES // 8
    lines = torch.zeros(number, words, device=device, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(number, generator=generator).to(device)
    addresses = lines.data_ptr() + order * _LINE_BYTES
    lines[order, 0] = addresses.roll(-1)
    return lines, addresses[:1].clone()


def _nanoseconds(kernel: CudaKernel, place: torch.Tensor) -> float:
    """Of one hop, the least of some repeats: whatever disturbs makes it longer."""
    call = kernel.prepare((1, 1, 1), (1, 1, 1), place, np.int32(_HOPS))
    seconds = time_repeats(call, repeats=_REPEATS, repeat_s=_REPEAT_S, warmup_s=_REPEAT_S)
    return min(seconds) / _HOPS * 1e9


@cache
def _compiled(architecture: str) -> CompiledProgram:
    source = files("gpuprof.reference_kernels.calibration").joinpath("memory_latency.cu")
    return compile_source(source.read_text(), architecture=architecture, name="memory_latency.cu")
