"""Softmax in CUDA C++: a block holds a row in registers, 16 bytes a load.

The row stays as it was read, in 16 bits where it has 16, and is converted each time that it is
needed: twice as many rows are under way as with float32 in registers, which hides memory's latency
better than the exponential costs that is taken twice. What is left of arithmetic is as little as
can be, and blocks ask for later rows: 98 % of a copy of as many bytes on an H200.

Source: the persistent softmax of FasterTransformer and its like. FLOPs: 5 an element by definition,
6 executed: difference and exponential are computed for the sum and again for the result, which is
divided in its exponent. Bytes: compulsory, each row being read once.
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
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of
from gpuprof.reference_kernels.softmax.problem import SoftmaxProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest
from gpuprof.roofline.cost_models.cost import Flops

# Maximum; difference, exponential and sum; difference and exponential again.
_OPERATIONS = 6


def compile_for(problem: SoftmaxProblem, share: RowShare, architecture: str) -> CudaKernel:
    """The kernel for these columns, shared out so; needs no GPU."""
    return compile_kernel(
        Path(__file__).with_suffix(".cu"),
        "softmax",
        dtype=problem.dtype,
        vector=share.vector,
        architecture=architecture,
        THREADS=share.threads,
        ITEMS=share.items,
        BLOCKS=share.blocks,
    )


def prepare(problem: SoftmaxProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    if problem.columns > MOST_COLUMNS:
        raise UnsupportedError(f"softmax/cuda holds rows of up to {MOST_COLUMNS} elements")
    architecture = architecture_of(problem.device)
    output = problem.input.new_empty(problem.input.shape)

    def call_of(share: RowShare) -> Callable[[], None]:
        return partial(
            compile_for(problem, share, architecture).launch,
            (problem.rows, 1, 1),
            (share.threads, 1, 1),
            problem.input,
            output,
            np.int32(problem.columns),
            np.int32(blocks_ahead(problem.device)),
        )

    calls = {share: call_of(share) for share in row_shares(problem.columns, problem.dtype)}
    share = fastest(list(calls), lambda chosen: calls[chosen]())
    executed = Flops("vector", "fp32", _OPERATIONS * problem.input.numel())
    return Prepared(calls[share], (output,), executed_flops=(executed,), note=share.note)
