"""Softmax in CUDA C++: a block holds a row in registers, 16 bytes a load.

Source: the persistent softmax of FasterTransformer and its like. FLOPs: 5 an element by definition;
an H100 executes 1.04 times as many, the exponential as two products and an instruction of the
special function unit, the maximum as none that is counted. Bytes: compulsory, each row being read
once.
"""

from functools import partial
from pathlib import Path

import numpy as np

from gpuprof.reference_kernels.cuda_vectors import (
    MOST_COLUMNS,
    RowShare,
    compile_kernel,
    share_row,
)
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of
from gpuprof.reference_kernels.softmax.problem import SoftmaxProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError


def kernel_for(problem: SoftmaxProblem, architecture: str) -> tuple[CudaKernel, RowShare]:
    """The kernel for these columns, and how it shares out a row; needs no GPU."""
    share = share_row(problem.columns, problem.dtype)
    kernel = compile_kernel(
        Path(__file__).with_suffix(".cu"),
        "softmax",
        dtype=problem.dtype,
        vector=share.vector,
        architecture=architecture,
        THREADS=share.threads,
        ITEMS=share.items,
    )
    return kernel, share


def prepare(problem: SoftmaxProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    if problem.columns > MOST_COLUMNS:
        raise UnsupportedError(f"softmax/cuda holds rows of up to {MOST_COLUMNS} elements")
    kernel, share = kernel_for(problem, architecture_of(problem.device))
    output = problem.input.new_empty(problem.input.shape)
    call = partial(
        kernel.launch,
        (problem.rows, 1, 1),
        (share.threads, 1, 1),
        problem.input,
        output,
        np.int32(problem.columns),
    )
    return Prepared(call, (output,), note=share.note)
