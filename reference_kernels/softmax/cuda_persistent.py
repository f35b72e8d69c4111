"""Softmax in CUDA C++ for Hopper: the copy engine brings rows and takes them away.

Against cuda: there a block loads a row, waits, computes and stores, and what keeps memory busy
meanwhile is another block of the multiprocessor. Here a block stays; while it solves a row in
shared memory the next ones arrive and the last ones leave, without a register for bytes under way.

FLOPs: as cuda. Bytes: compulsory, each row being read once.

Source: PTX ISA, "cp.async.bulk".
"""

from functools import partial
from pathlib import Path

import numpy as np

from gpuprof.reference_kernels.hopper.program import require_hopper
from gpuprof.reference_kernels.hopper.rows import RowsInTurn, compile_rows, rows_in_turn
from gpuprof.reference_kernels.nvrtc import CudaKernel
from gpuprof.reference_kernels.softmax.problem import SoftmaxProblem
from gpuprof.reference_kernels.suite import Prepared


def kernel_for(problem: SoftmaxProblem) -> tuple[CudaKernel, RowsInTurn]:
    """The kernel for these columns, and how rows pass through it; needs no GPU."""
    plan = rows_in_turn(problem.columns, problem.dtype)
    source = Path(__file__).with_name("cuda.cu")
    return compile_rows(source, "softmax", plan, dtype=problem.dtype), plan


def prepare(problem: SoftmaxProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    kernel, plan = kernel_for(problem)
    require_hopper("softmax/cuda-persistent", problem.device)
    output = problem.input.new_empty(problem.input.shape)
    call = partial(
        kernel.launch,
        plan.grid(problem.rows, problem.device),
        (plan.share.threads, 1, 1),
        problem.input,
        output,
        np.int32(problem.columns),
        np.int32(problem.rows),
        shared_memory_bytes=plan.shared_memory_bytes,
    )
    return Prepared(call, (output,), note=plan.note)
