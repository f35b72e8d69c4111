"""Layer and RMS normalisation in CUDA C++: a block holds a row in registers, 16 bytes a load.

Variance is the mean square of what is left after the mean, not a difference of squares, which
cancels. FLOPs: those of the definition; an H100 executes 1.2 times as many for layer and 1.4 for
rms, with the sums across threads and scaling by a factor a row. Bytes: compulsory, each row being
read once, and so counted; weight and bias are read by every block, from L2.
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
from gpuprof.reference_kernels.norm.problem import EPSILON, NormProblem
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError


def kernel_for(problem: NormProblem, architecture: str) -> tuple[CudaKernel, RowShare]:
    """The kernel for these columns, and how it shares out a row; needs no GPU."""
    share = share_row(problem.columns, problem.dtype)
    kernel = compile_kernel(
        Path(__file__).with_suffix(".cu"),
        "normalise",
        dtype=problem.dtype,
        vector=share.vector,
        architecture=architecture,
        THREADS=share.threads,
        ITEMS=share.items,
        LAYER=int(problem.bias is not None),
    )
    return kernel, share


def prepare(problem: NormProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    if problem.columns > MOST_COLUMNS:
        raise UnsupportedError(f"norm/cuda holds rows of up to {MOST_COLUMNS} elements")
    kernel, share = kernel_for(problem, architecture_of(problem.device))
    output = problem.input.new_empty(problem.input.shape)
    call = partial(
        kernel.launch,
        (problem.rows, 1, 1),
        (share.threads, 1, 1),
        problem.input,
        problem.weight,
        problem.weight if problem.bias is None else problem.bias,
        output,
        np.int32(problem.columns),
        EPSILON,
    )
    return Prepared(call, (output,), note=share.note)
