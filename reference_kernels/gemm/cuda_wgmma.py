"""CUDA C++, step 5: wgmma, Hopper's own tensor-core instruction.

Against cuda-tensor-core: the tiles, the copies and their order are the same; what changes is who
feeds the tensor cores. There, each warp copies fragments from shared memory into registers and
issues an instruction for every 16 x 8 x 16 products. Here four warps issue one instruction for
64 x 256 x 16, which reads both operands from shared memory itself and runs in the background: no
fragments, no ldmatrix, a hundred times fewer instructions, and only so do the tensor cores reach
their full rate. The products of one tile run on while the next is awaited and while copies are
issued, so a second barrier says when both warpgroups are done with a stage.

What is left to triton-tiled and triton-persistent: a result that leaves in whole rows, TMA instead
of cp.async, and a grid that stays, so that one tile's end overlaps the next one's beginning.

FLOPs: 2 M N K on the tensor cores, M, N, K rounded up to 128, 256, 64.
Bytes: compulsory. Expected: compulsory, as cuda-tensor-core.
Measured: FLOPs exact. Read 2.79 times compulsory, as cuda-tensor-core and for its reason; written
0.85 times. (Counted with four stages; tiles and their order are the same.)

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; CUTLASS's Hopper mainloops.
"""

from pathlib import Path

import numpy as np

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.hopper.program import ARCHITECTURE, require_hopper
from gpuprof.reference_kernels.nvrtc import CudaKernel, compile_source
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
        raise UnsupportedError("cuda-wgmma has no groups and no epilogue")
    m, n, k = problem.m, problem.n, problem.k
    if n % 8 or k % 8:
        raise UnsupportedError(f"cuda-wgmma needs N and K in 8s, not {n} and {k}")
    require_hopper("cuda-wgmma", problem.device)
    kernel = compile_kernel(ARCHITECTURE, bf16=problem.dtype == "bf16")
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
