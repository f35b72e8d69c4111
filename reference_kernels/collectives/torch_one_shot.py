"""torch's own one-shot all-reduce over symmetric memory (symm_mem::one_shot_all_reduce).

Costs as triton_one_shot: it is there to be compared with it.
"""

import torch

from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.collectives.symmetric_memory import share
from gpuprof.reference_kernels.suite import Prepared, Problem
from gpuprof.roofline.cost_models.cost import Flops


def prepare(problem: Problem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    assert isinstance(problem, CollectiveProblem)
    problem.need("all-reduce")
    shared, output, source = share(problem), problem.output(), problem.input
    all_reduce = torch.ops.symm_mem.one_shot_all_reduce_out
    return Prepared(
        lambda: all_reduce(shared.buffer, "sum", shared.group_name, out=output),
        (output,),
        before=lambda: shared.buffer.copy_(source),
        executed_flops=(Flops("vector", problem.dtype, (problem.ranks - 1) * problem.elements),),
        expected_bytes_read=problem.ranks * problem.message_bytes,
        expected_bytes_written=problem.message_bytes,
    )
