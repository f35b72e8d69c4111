"""Vector units, caches and shared memory of a GPU, by CUDA C++ kernels (`on_chip.cu`)."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import numpy as np
import torch

from gpuprof.reference_kernels.calibration.probe import Call, Probe
from gpuprof.reference_kernels.calibration.stream import random_numbers
from gpuprof.reference_kernels.multiprocessors import multiprocessors
from gpuprof.reference_kernels.nvrtc import (
    CompiledProgram,
    CudaKernel,
    architecture_of,
    compile_source,
)

# As in on_chip.cu.
_FLOPS_A_ROUND = 2 * 8 * 32
_LOADS_A_ROUND = 4
_VECTOR_BYTES = 16
_SHARED_BYTES = 2048 * _VECTOR_BYTES

# Far below what any L1 holds beside shared memory.
_L1_BYTES = 16 << 10

_BLOCK = 1024
_BLOCKS_A_MULTIPROCESSOR = 2
# Rounds that take milliseconds, so that neither launch nor tail counts.
_FP32_ROUNDS = 1024
# Few fp64 units, outside data-centre GPUs: 1/64 of the fp32 rate.
_FP64_ROUNDS = 256
_L2_ROUNDS = 512
_SHARED_ROUNDS = 2048
# Both halves of a split L2 hold a copy of what all multiprocessors read. Smaller arrays read
# faster than the L2 can: 12 TB/s of 2 MiB on an H100, against 7.8 TB/s from 8 MiB to 32 MiB.
_L2_SHARE = 2


def make_on_chip_probes(device: torch.device, l2_cache_bytes: int | None) -> Iterator[Probe]:
    """FMA chains in fp32 and fp64, reads of L2 (where its size is known), L1 and shared memory.

    Raises `MissingDependencyError` without the extra `cuda`.
    """
    program = compile_on_chip(architecture_of(device))
    blocks = _BLOCKS_A_MULTIPROCESSOR * multiprocessors(device)
    threads = blocks * _BLOCK
    for precision, dtype, rounds in (
        ("fp32", torch.float32, _FP32_ROUNDS),
        ("fp64", torch.float64, _FP64_ROUNDS),
    ):
        kernel = CudaKernel(program, f"fused_multiply_adds_{precision}")
        factors = random_numbers(str(device), 256).to(dtype)
        out = torch.empty(threads, device=device, dtype=dtype)
        yield Probe(
            kind="compute",
            name=f"FMA {precision}",
            call=_launcher(kernel, blocks, factors, out, np.int32(rounds)),
            amount=threads * rounds * _FLOPS_A_ROUND,
            method="fused multiply-adds",
            precision=precision,
            unit="vector",
        )
    results = torch.empty(threads, device=device, dtype=torch.float32)

    def read(level: str, size: int, method: str, rounds: int, *counts: np.generic) -> Probe:
        """Of `size` bytes at `level`; `counts` are what its kernel takes before the rounds."""
        return Probe(
            kind="memory",
            name=f"{level} read",
            call=_launcher(
                CudaKernel(program, f"read_{level.lower()}"),
                blocks,
                random_numbers(str(device), size // 4),
                results,
                *counts,
                np.int32(rounds),
            ),
            amount=threads * rounds * _LOADS_A_ROUND * _VECTOR_BYTES,
            method=method,
            level=level,
        )

    if l2_cache_bytes:
        vectors = 2 ** ((l2_cache_bytes // _L2_SHARE // _VECTOR_BYTES).bit_length() - 1)
        size = vectors * _VECTOR_BYTES
        method = f"{size / 2**20:g} MiB, read by all"
        yield read("L2", size, method, _L2_ROUNDS, np.int32(vectors))
    method = f"{_L1_BYTES >> 10} KiB, the same in each multiprocessor"
    yield read("L1", _L1_BYTES, method, _SHARED_ROUNDS, np.int32(_L1_BYTES // _VECTOR_BYTES))
    yield read("shared", _SHARED_BYTES, "without bank conflicts", _SHARED_ROUNDS)


@cache
def compile_on_chip(architecture: str) -> CompiledProgram:
    """The kernels of `on_chip.cu` for `architecture`."""
    source = files("gpuprof.reference_kernels.calibration").joinpath("on_chip.cu").read_text()
    return compile_source(source, architecture=architecture, name="on_chip.cu")


def _launcher(kernel: CudaKernel, blocks: int, *arguments: torch.Tensor | np.generic) -> Call:
    grid, block = (blocks, 1, 1), (_BLOCK, 1, 1)
    return lambda: kernel.launch(grid, block, *arguments)
