"""CUDA C++, step 2: a block's operands in shared memory.

Against cuda-naive: a block of 32 x 32 threads copies 32 x 32 tiles of A and B into shared memory
and every element is then used 32 times from there, so that global loads fall to 1/32:
8 M N K / 32 bytes. What remains is that each multiply-add still needs two operands from shared
memory: one broadcast and one 128-byte row a warp. Shared memory delivers 128 bytes a cycle, enough
for a quarter of the FP32 units. That is the roof here.

FLOPs: 2 M N K on the FP32 units (K rounded up to 32 at the edge).
Bytes: compulsory. Expected: as cuda-naive, as the blocks go in the same order.
Measured: FLOPs 1.063 times: to make a zero the compiler uses one HFMA2 a tile, which counters take
for four. Read 62.7 times compulsory: the two rows of blocks that run at one time are not at the
same tile, so that each reads all of B for itself. It is still faster than cuda-naive: DRAM limits
neither.

Source: CUDA C++ Programming Guide, "Shared Memory": matrix multiplication with shared memory.
"""

from pathlib import Path

import numpy as np

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of, compile_source
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError

_TILE = 32


def compile_kernel(architecture: str) -> CudaKernel:
    """The kernel for `architecture` ("sm_90a"); needs no GPU."""
    source = Path(__file__).with_suffix(".cu")
    program = compile_source(source.read_text(), architecture=architecture, name=source.name)
    return CudaKernel(program, "gemm")


def prepare(problem: GemmProblem) -> Prepared:
    """Any plain size."""
    if not problem.plain:
        raise UnsupportedError("cuda-tiled has no groups and no epilogue")
    kernel = compile_kernel(architecture_of(problem.device))
    a, b, out = problem.a, problem.b, problem.new_output()
    grid = (-(-problem.n // _TILE), -(-problem.m // _TILE), 1)
    sizes = (np.int32(problem.m), np.int32(problem.n), np.int32(problem.k))
    return Prepared(lambda: kernel.launch(grid, (_TILE, _TILE, 1), a, b, out, *sizes), (out,))
