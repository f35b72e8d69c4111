"""All-reduce along a ring, written out: a reduce-scatter, then an all-gather.

The message is cut in N chunks. In each of N-1 steps a rank sends one chunk to its successor and
adds the one that arrives; then every rank holds one chunk's sum, and N-1 more steps hand the sums
round. Each rank sends 2 (N-1) / N of the message, which no algorithm without the switch's help
undercuts (Patarasuk and Yuan, 2009).

Expected bytes of memory on each rank: of the reduce-scatter's steps each reads a chunk to send it,
writes the one that arrives, reads it again with its own and writes the sum (3 read, 2 written); of
the all-gather's each reads one and writes one.
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
    arriving = torch.empty(problem.share, dtype=problem.torch_dtype, device=problem.device)
    passed_on = (problem.ranks - 1) * problem.message_bytes // problem.ranks
    return Prepared(
        lambda: ring_all_reduce(output, arriving),
        (output,),
        before=lambda: output.copy_(source),
        expected_bytes_read=4 * passed_on,
        expected_bytes_written=3 * passed_on,
    )


def ring_all_reduce(buffer: torch.Tensor, arriving: torch.Tensor) -> tuple[Send, ...]:
    """Sum `buffer` over all ranks in place. Returns what this rank sent, step by step.

    `buffer` has N chunks of the shape of `arriving`, which is overwritten.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    chunks = buffer.chunk(ranks)
    successor, predecessor = (rank + 1) % ranks, (rank - 1) % ranks
    sends = []
    for step in range(ranks - 1):
        out, into = (rank - step) % ranks, (rank - step - 1) % ranks
        exchange(chunks[out], successor, arriving, predecessor)
        chunks[into].add_(arriving)
        sends.append(Send(step, successor, out, chunks[out].nbytes))
    for step in range(ranks - 1):
        out, into = (rank + 1 - step) % ranks, (rank - step) % ranks
        exchange(chunks[out], successor, chunks[into], predecessor)
        sends.append(Send(ranks - 1 + step, successor, out, chunks[out].nbytes))
    return tuple(sends)
