"""All-reduce along a binomial tree, written out: a reduction to rank 0, then a broadcast.

In step k of the reduction the ranks whose number has its lowest set bit at k send all they have
to the rank without that bit, and are done; the broadcast goes the same way back. 2 ceil(log2 N)
steps, against 2 (N-1) of a ring, so it wins where latency binds; but each step carries the whole
message (Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in
MPICH, 2005).
"""

import torch
import torch.distributed as dist

from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.collectives.sends import Send, exchange
from gpuprof.reference_kernels.suite import Prepared, Problem


def prepare(problem: Problem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    assert isinstance(problem, CollectiveProblem)
    problem.need("all-reduce")
    source, output = problem.input, problem.output()
    arriving = torch.empty_like(output)
    return Prepared(
        lambda: tree_all_reduce(output, arriving),
        (output,),
        before=lambda: output.copy_(source),
    )


def tree_all_reduce(buffer: torch.Tensor, arriving: torch.Tensor) -> tuple[Send, ...]:
    """Sum `buffer` over all ranks in place, with `arriving` of its size to overwrite.

    Returns what this rank sent, step by step.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    levels = (ranks - 1).bit_length()
    sends = []
    for level in range(levels):
        if rank % (2 << level) == 1 << level:
            parent = rank - (1 << level)
            exchange(buffer, parent, None, parent)
            sends.append(Send(level, parent, None, buffer.nbytes))
        elif rank % (2 << level) == 0 and rank + (1 << level) < ranks:
            exchange(None, rank, arriving, rank + (1 << level))
            buffer.add_(arriving)
    for level in reversed(range(levels)):
        step = 2 * levels - 1 - level
        if rank % (2 << level) == 1 << level:
            exchange(None, rank, buffer, rank - (1 << level))
        elif rank % (2 << level) == 0 and rank + (1 << level) < ranks:
            child = rank + (1 << level)
            exchange(buffer, child, None, child)
            sends.append(Send(step, child, None, buffer.nbytes))
    return tuple(sends)
