"""torch's own two-shot all-reduce over symmetric memory (symm_mem::two_shot_all_reduce_).

Costs as triton_two_shot: it is there to be compared with it.
"""

import torch

from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.collectives.symmetric_memory import share
from gpuprof.reference_kernels.suite import Prepared, Problem


def prepare(problem: Problem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    assert isinstance(problem, CollectiveProblem)
    problem.need("all-reduce")
    shared, source = share(problem), problem.input
    all_reduce = torch.ops.symm_mem.two_shot_all_reduce_
    return Prepared(
        lambda: all_reduce(shared.buffer, "sum", shared.group_name),
        (shared.buffer,),
        before=lambda: shared.buffer.copy_(source),
    )
