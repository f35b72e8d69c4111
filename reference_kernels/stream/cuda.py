"""Copy and triad in CUDA C++: 16 bytes a thread and array.

FLOPs: 0 for a copy, 2 n for a triad, as one fused multiply-add an element. Compulsory and expected
bytes: 2 and 3 arrays.
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from gpuprof.reference_kernels.cuda_vectors import compile_kernel, vector_size
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of
from gpuprof.reference_kernels.stream.problem import SCALE, Stream
from gpuprof.reference_kernels.suite import Prepared

_THREADS = 256


def kernel_for(problem: Stream, architecture: str) -> tuple[CudaKernel, int]:
    """The kernel and the elements of its vectors; needs no GPU."""
    vector = vector_size(problem.dtype)
    kernel = compile_kernel(
        Path(__file__).with_suffix(".cu"),
        problem.kernel,
        dtype=problem.dtype,
        vector=vector,
        architecture=architecture,
    )
    return kernel, vector


def prepare(problem: Stream) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    kernel, vector = kernel_for(problem, architecture_of(problem.device))
    output = torch.empty_like(problem.a)
    count = problem.elements
    launch = partial(kernel.launch, (-(-count // (vector * _THREADS)), 1, 1), (_THREADS, 1, 1))
    if problem.b is None:
        call = partial(launch, problem.a, output, np.int64(count))
    else:
        call = partial(launch, problem.a, problem.b, output, np.int64(count), SCALE)
    return Prepared(call, (output,), note=f"{vector} elements a thread, {_THREADS} threads")
