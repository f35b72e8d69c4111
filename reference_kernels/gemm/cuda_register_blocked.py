"""CUDA C++, step 3: 8 x 8 elements of C a thread, in registers.

Against cuda-tiled: a thread reads 8 values of A and 8 of B from shared memory and does 64
multiply-adds with them, a quarter of an operand each instead of two, so that shared memory no
longer limits and the FP32 units do. Tiles of 128 x 128 also cut global loads to a quarter of
step 2's. Two more changes keep the units fed: the next tile travels from global memory into
registers while this one is multiplied, and two tiles in shared memory need one barrier a step
instead of two.

FLOPs: 2 M N K on the FP32 units, M and N rounded up to 128, K to 8.
Bytes: compulsory. Expected: as cuda-naive; a wave covers 128 x 128 tiles, so a B larger than the
L2 is read again less often.
Measured: FLOPs exact. Read 4.2 times compulsory: a row of blocks is 128 rows of C now, and a wave
eight rows of blocks.

Source: Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra", SC 2008.
"""

from pathlib import Path

import numpy as np

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of, compile_source
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops

_TILE = 128
_DEPTH = 8
_THREADS = 256


def compile_kernel(architecture: str) -> CudaKernel:
    """The kernel for `architecture` ("sm_90a"); needs no GPU."""
    source = Path(__file__).with_suffix(".cu")
    program = compile_source(source.read_text(), architecture=architecture, name=source.name)
    return CudaKernel(program, "gemm")


def prepare(problem: GemmProblem) -> Prepared:
    """Any plain size; edges are padded with zeros in shared memory."""
    if not problem.plain:
        raise UnsupportedError("cuda-register-blocked has no groups and no epilogue")
    kernel = compile_kernel(architecture_of(problem.device))
    a, b, out = problem.a, problem.b, problem.new_output()
    grid = (-(-problem.n // _TILE), -(-problem.m // _TILE), 1)
    sizes = (np.int32(problem.m), np.int32(problem.n), np.int32(problem.k))
    depth = -(-problem.k // _DEPTH) * _DEPTH
    executed = 2 * grid[0] * _TILE * grid[1] * _TILE * depth
    return Prepared(
        lambda: kernel.launch(grid, (_THREADS, 1, 1), a, b, out, *sizes),
        (out,),
        executed_flops=(Flops("matmul", "fp32", executed),),
    )
