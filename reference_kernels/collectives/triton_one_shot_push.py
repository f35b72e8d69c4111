"""One-shot all-reduce in Triton without signals: each rank writes its message into all inboxes.

A rank waits for no one before it sends, and the data that arrives is its own signal: an inbox is
empty while it holds -0.0, which is sent as 0.0. So one way over the link is all the latency there
is, where triton_one_shot waits for two exchanges of signals before and after it reads. It takes the
message where it lies; triton_one_shot wants it in symmetric memory.

There are two inboxes, used in turn. A rank empties what it has read before its call ends; another
writes there two calls later, when it has the data of the call between them, and so after that.

Expected bytes of a rank's memory: N messages read, its own and N-1 from its inbox; its result
written, and N-1 messages into its inbox, by the others and again by itself, to empty it. All of
that fits the L2 cache for the messages that this is for. FLOPs: (N-1) additions an element on every
rank. The idea is that of TensorRT-LLM's Lamport all-reduce.
"""

from itertools import cycle

import torch
import torch.distributed as dist

from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.collectives.symmetric_memory import share
from gpuprof.reference_kernels.collectives.triton_launch import launch_shape
from gpuprof.reference_kernels.suite import Prepared, Problem, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops

_INBOXES = 2
_LARGEST_BYTES = 8 * 2**20
_WORDS = {2: torch.int16, 4: torch.int32}


def prepare(problem: Problem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    from gpuprof.reference_kernels.collectives.triton_kernels import one_shot_push

    assert isinstance(problem, CollectiveProblem)
    problem.need("all-reduce")
    if problem.message_bytes > _LARGEST_BYTES:
        raise UnsupportedError("it is for messages of up to 8 MiB")
    word = _WORDS[problem.torch_dtype.itemsize]
    # -0.0: the sign bit alone.
    empty = torch.iinfo(word).min
    ranks = problem.ranks
    shared = share(problem, messages=_INBOXES * ranks)
    shared.buffer.view(word).fill_(empty)
    # Nobody sends before all inboxes are empty.
    dist.all_reduce(torch.zeros(1, device=problem.device))
    output, source = problem.output(), problem.input.view(word)
    # Every block that waits must run at the same time as those that it waits for.
    shape = launch_shape(problem.elements, ranks, shared.signals)
    offsets = cycle(
        shared.offset_bytes + inbox * ranks * problem.message_bytes for inbox in range(_INBOXES)
    )
    return Prepared(
        lambda: one_shot_push[(shape.blocks,)](
            shared.buffer_table,
            next(offsets),
            source,
            output,
            problem.elements,
            problem.rank,
            RANKS=ranks,
            BLOCK=shape.block,
            EMPTY=empty,
            num_warps=shape.warps,
        ),
        (output,),
        executed_flops=(Flops("vector", problem.dtype, (ranks - 1) * problem.elements),),
        expected_bytes_read=ranks * problem.message_bytes,
        expected_bytes_written=(2 * ranks - 1) * problem.message_bytes,
    )
