"""Copy and triad by torch, one kernel each.

FLOPs: 0 for a copy, 2 n for a triad. Compulsory and expected bytes: 2 and 3 arrays.
"""

import torch

from gpuprof.reference_kernels.stream.problem import SCALE, Stream
from gpuprof.reference_kernels.suite import Prepared, Problem


def prepare(problem: Problem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    assert isinstance(problem, Stream)
    a, b, out = problem.a, problem.b, torch.empty_like(problem.a)
    if b is None:
        return Prepared(lambda: out.copy_(a), (out,))
    return Prepared(lambda: torch.add(a, b, alpha=SCALE, out=out), (out,))
