"""Layer and RMS normalisation in CUDA C++: a block holds a row in registers, 16 bytes a load.

Variance is the mean square of what is left after the mean, not a difference of squares, which
cancels. FLOPs: those of the definition; an H100 executes 1.2 times as many for layer and 1.4 for
rms, with the sums across threads and scaling by a factor a row. Bytes: compulsory, each row being
read once, and so counted; weight and bias are read by every block, from L2.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from gpuprof.reference_kernels.cuda_vectors import (
    MOST_COLUMNS,
    RowShare,
    blocks_ahead,
    compile_kernel,
    row_shares,
)
from gpuprof.reference_kernels.norm.problem import EPSILON, NormProblem
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest


def compile_for(problem: NormProblem, share: RowShare, architecture: str) -> CudaKernel:
    """The kernel for these columns, shared out so; needs no GPU."""
    return compile_kernel(
        Path(__file__).with_suffix(".cu"),
        "normalise",
        dtype=problem.dtype,
        vector=share.vector,
        architecture=architecture,
        THREADS=share.threads,
        ITEMS=share.items,
        BLOCKS=share.blocks,
        LAYER=int(problem.bias is not None),
    )


def prepare(problem: NormProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    if problem.columns > MOST_COLUMNS:
        raise UnsupportedError(f"norm/cuda holds rows of up to {MOST_COLUMNS} elements")
    architecture = architecture_of(problem.device)
    output = problem.input.new_empty(problem.input.shape)

    def call_of(share: RowShare) -> Callable[[], None]:
        return partial(
            compile_for(problem, share, architecture).launch,
            (problem.rows, 1, 1),
            (share.threads, 1, 1),
            problem.input,
            problem.weight,
            problem.weight if problem.bias is None else problem.bias,
            output,
            np.int32(problem.columns),
            EPSILON,
            np.int32(blocks_ahead(problem.device)),
        )

    calls = {share: call_of(share) for share in row_shares(problem.columns, problem.dtype)}
    share = fastest(list(calls), lambda chosen: calls[chosen]())
    return Prepared(calls[share], (output,), note=share.note)
