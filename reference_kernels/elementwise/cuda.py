"""Elementwise operations in CUDA C++: one pass, 16 bytes a load.

FLOPs: those of the definition; for gelu an H100 executes 3.9 times as many, the error function
being a polynomial, for swiglu 2.7, a division being several instructions, for rotary 1.08. Bytes:
compulsory, and so counted; the rotary tables are read once for each sequence and head, mostly from
L2 (rotary reads 5 % more in all).
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from gpuprof.reference_kernels.cuda_vectors import compile_kernel, vector_size
from gpuprof.reference_kernels.elementwise.problem import ElementwiseProblem
from gpuprof.reference_kernels.nvrtc import CudaKernel, architecture_of
from gpuprof.reference_kernels.suite import Prepared

_THREADS = 256


def kernel_for(problem: ElementwiseProblem, architecture: str) -> tuple[CudaKernel, int]:
    """The operation's kernel and the elements of its vectors; needs no GPU."""
    rotary = problem.operation == "rotary"
    vector = vector_size(problem.dtype, *([problem.shape[-1] // 2] if rotary else []))
    source = Path(__file__).with_suffix(".cu")
    kernel = compile_kernel(
        source, problem.operation, dtype=problem.dtype, vector=vector, architecture=architecture
    )
    return kernel, vector


def prepare(problem: ElementwiseProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    kernel, vector = kernel_for(problem, architecture_of(problem.device))
    output = problem.empty_output()
    numbers: tuple[np.generic, ...]
    if problem.operation == "rotary":
        _, length, heads, size = problem.shape
        count = output.numel() // 2
        numbers = (np.int64(count), np.int32(length), np.int32(heads), np.int32(size // 2))
    else:
        count = output.numel()
        numbers = (np.int64(count),)
    blocks = -(-count // (vector * _THREADS))
    call: Callable[[], object] = partial(
        kernel.launch, (blocks, 1, 1), (_THREADS, 1, 1), *problem.inputs, output, *numbers
    )
    return Prepared(call, (output,), note=f"{vector} elements a thread, {_THREADS} threads")
