"""The decoder through torch.compile: norms, rotations, activations and residuals are fused.

FLOPs: those of the definition. Bytes: fewer than eager's, as fewer results lie between kernels; the
matrix products and attention stay the libraries' own. No expectation is given, as for eager.
"""

import torch

from gpuprof.reference_kernels.library_outputs import adopt, empty_outputs
from gpuprof.reference_kernels.model.llama import decoder
from gpuprof.reference_kernels.model.problem import ModelProblem
from gpuprof.reference_kernels.model.solving import make_solve
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ModelProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    solve = make_solve(problem, torch.compile(decoder, dynamic=False, fullgraph=True))
    outputs = empty_outputs(len(solve()), problem.device)
    return Prepared(lambda: adopt(outputs, solve()), outputs)
