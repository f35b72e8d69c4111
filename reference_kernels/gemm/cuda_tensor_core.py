"""CUDA C++, step 4: tensor cores, fed by a pipeline of asynchronous copies.

Against cuda-register-blocked: one mma.sync does 16 x 8 x 16 multiply-adds for a warp, in 16-bit
operands with float32 sums, so that arithmetic is some fifteen times as fast and everything lies in
feeding it. cp.async brings the tiles after next straight from global to shared memory, past the
registers, three stages deep, while this one is multiplied. ldmatrix reads the fragments, four
8 x 8 matrices at once, from rows whose 16-byte chunks are permuted so that no two of them share
banks, and reads the next ones while these are multiplied. A warp's 64 x 64 part of C uses each
fragment of A eight times and of B four. Addresses are computed once: twelve copies a thread and
tile, each with its own multiplications, cost a quarter of the rate here.

On Hopper mma.sync reaches about 60 % of the tensor cores' rate; the rest is for wgmma, which reads
its operands from shared memory itself: see cuda-wgmma.

FLOPs: 2 M N K on the tensor cores, M, N, K rounded up to 128, 256, 64.
Bytes: compulsory. Expected: compulsory, as tiles are numbered so that those of a wave share
operands in the L2.
Measured: FLOPs exact. Read 2.78 times compulsory: a band of eight rows of tiles walks along all of
B, more than the half of the L2 next to a multiprocessor holds. Written 1.02 times: pairs of columns
fill a sector in two steps, and some leave the L2 between. (Counted before addresses were computed
once; tiles and their order are the same.)

Source: CUTLASS's multistage pipeline (NVIDIA, "Efficient GEMM in CUDA"); PTX ISA, mma.m16n8k16,
ldmatrix and cp.async.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of, compile_source
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops

_TILE_M, _TILE_N, _TILE_K = 128, 256, 64
_STAGES = 3
_THREADS = 256
_SHARED_MEMORY_BYTES = _STAGES * (_TILE_M + _TILE_N) * _TILE_K * 2


def compile_kernel(architecture: str, *, bf16: bool) -> CudaKernel:
    """The kernel for `architecture` ("sm_90a") and operands in bf16 or fp16; needs no GPU."""
    path = Path(__file__).with_suffix(".cu")
    source = f"#define BF16 {int(bf16)}\n{path.read_text()}"
    program = compile_source(source, architecture=architecture, name=path.name)
    return CudaKernel(program, "gemm")


def prepare(problem: GemmProblem) -> Prepared:
    """Plain sizes with N and K multiples of 8, as cp.async copies 16 aligned bytes."""
    if not problem.plain:
        raise UnsupportedError("cuda-tensor-core has no groups and no epilogue")
    m, n, k = problem.m, problem.n, problem.k
    if n % 8 or k % 8:
        raise UnsupportedError(f"cuda-tensor-core needs N and K in 8s, not {n} and {k}")
    properties: Any = torch.cuda.get_device_properties(problem.device)
    most = properties.shared_memory_per_block_optin
    if most < _SHARED_MEMORY_BYTES:
        needed = f"{_SHARED_MEMORY_BYTES} bytes of shared memory a block"
        raise UnsupportedError(f"cuda-tensor-core needs {needed}, this GPU has {most}")
    kernel = compile_kernel(architecture_of(problem.device), bf16=problem.dtype == "bf16")
    a, b, out = problem.a, problem.b, problem.new_output()
    tiles_m, tiles_n, tiles_k = -(-m // _TILE_M), -(-n // _TILE_N), -(-k // _TILE_K)
    sizes = (np.int32(m), np.int32(n), np.int32(k))
    executed = 2 * tiles_m * _TILE_M * tiles_n * _TILE_N * tiles_k * _TILE_K

    def call() -> None:
        kernel.launch(
            (tiles_m * tiles_n, 1, 1),
            (_THREADS, 1, 1),
            a,
            b,
            out,
            *sizes,
            shared_memory_bytes=_SHARED_MEMORY_BYTES,
        )

    return Prepared(call, (out,), executed_flops=(Flops("matmul", problem.dtype, executed),))
