"""Layer and RMS normalisation in CUDA C++ for Hopper: rows come and leave by the copy engine.

Against cuda: as softmax/cuda-persistent; weight and bias are read for each row, from the L2.

FLOPs: as cuda. Bytes: compulsory, each row being read once.

Source: PTX ISA, "cp.async.bulk".
"""

from functools import partial
from pathlib import Path

import numpy as np

from gpuprof.reference_kernels.hopper.program import require_hopper
from gpuprof.reference_kernels.hopper.rows import RowsInTurn, compile_rows, rows_in_turn
from gpuprof.reference_kernels.norm.problem import EPSILON, NormProblem
from gpuprof.reference_kernels.nvrtc import CudaKernel
from gpuprof.reference_kernels.suite import Prepared


def kernel_for(problem: NormProblem) -> tuple[CudaKernel, RowsInTurn]:
    """The kernel for these columns, and how rows pass through it; needs no GPU."""
    plan = rows_in_turn(problem.columns, problem.dtype)
    source = Path(__file__).with_name("cuda.cu")
    layer = int(problem.bias is not None)
    return compile_rows(source, "normalise", plan, dtype=problem.dtype, LAYER=layer), plan


def prepare(problem: NormProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    kernel, plan = kernel_for(problem)
    require_hopper("norm/cuda-persistent", problem.device)
    output = problem.input.new_empty(problem.input.shape)
    call = partial(
        kernel.launch,
        plan.grid(problem.rows, problem.device),
        (plan.share.threads, 1, 1),
        problem.input,
        problem.weight,
        problem.weight if problem.bias is None else problem.bias,
        output,
        np.int32(problem.columns),
        EPSILON,
        np.int32(problem.rows),
        shared_memory_bytes=plan.shared_memory_bytes,
    )
    return Prepared(call, (output,), note=plan.note)
