"""torch.softmax: one kernel.

FLOPs: 5 an element by definition; an H100 executes 7.9 times as many, torch's exponential being
precise. Bytes: compulsory where its kernel keeps a row in registers or shared memory; longer rows
are read two or three times, mostly from L2.
"""

import torch

from gpuprof.reference_kernels.softmax.problem import SoftmaxProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: SoftmaxProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    output = torch.empty_like(problem.input)
    return Prepared(lambda: torch.softmax(problem.input, 1, out=output), (output,))
