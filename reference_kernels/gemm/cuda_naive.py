"""CUDA C++, step 1: one thread an element of C.

Each thread walks a row of A and a column of B. A multiply-add needs two loads, so the kernel runs
at the rate of the load units and the L1, far below the FP32 units: M N K multiply-adds ask for
8 M N K bytes. Threads of a warp share the element of A (one broadcast) and read 32 neighbours of
B (four sectors); a block's 32 rows and columns find each other's operands in the L1.

FLOPs: 2 M N K on the FP32 units.
Bytes: compulsory. Expected: A, B and C once while B fits the L2; a B larger than the L2 is read
again by every wave of blocks, as blocks go row by row.
Measured: FLOPs exact. Read 31.8 times compulsory, 4.3 GB: a wave of 264 blocks is two rows of
blocks, and each wave reads all of B, 67 MB, which the L2 does not hold.

Source: the definition; CUDA C++ Programming Guide, "Shared Memory", its first example.
"""

from pathlib import Path

import numpy as np

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of, compile_source
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError

_BLOCK = 32


def compile_kernel(architecture: str) -> CudaKernel:
    """The kernel for `architecture` ("sm_90a"); needs no GPU."""
    source = Path(__file__).with_suffix(".cu")
    program = compile_source(source.read_text(), architecture=architecture, name=source.name)
    return CudaKernel(program, "gemm")


def prepare(problem: GemmProblem) -> Prepared:
    """Any plain size."""
    if not problem.plain:
        raise UnsupportedError("cuda-naive has no groups and no epilogue")
    kernel = compile_kernel(architecture_of(problem.device))
    a, b, out = problem.a, problem.b, problem.new_output()
    grid = (-(-problem.n // _BLOCK), -(-problem.m // _BLOCK), 1)
    sizes = (np.int32(problem.m), np.int32(problem.n), np.int32(problem.k))
    return Prepared(lambda: kernel.launch(grid, (_BLOCK, _BLOCK, 1), a, b, out, *sizes), (out,))
