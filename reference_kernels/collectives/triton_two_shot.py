"""Two-shot all-reduce in Triton: each rank sums its share of the message and writes it to all.

2 (N-1) / N of the message over each rank's links, as a ring, in two exchanges instead of 2 (N-1).
It works in place in the symmetric buffer. Expected bytes of a rank's memory: its message read once,
by all together, and written once. The idea is that of the custom all-reduce of TensorRT-LLM and
vLLM.
"""

from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.collectives.symmetric_memory import share
from gpuprof.reference_kernels.collectives.triton_launch import launch_shape
from gpuprof.reference_kernels.suite import Prepared, Problem


def prepare(problem: Problem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    from gpuprof.reference_kernels.collectives.triton_kernels import two_shot

    assert isinstance(problem, CollectiveProblem)
    problem.need("all-reduce")
    shared, source = share(problem), problem.input
    shape = launch_shape(problem.share, problem.ranks, shared.signals)
    arguments = (
        shared.buffer_table,
        shared.offset_bytes,
        shared.signal_table,
        shared.buffer,
        problem.share,
        problem.rank,
    )
    return Prepared(
        lambda: two_shot[(shape.blocks,)](
            *arguments, RANKS=problem.ranks, BLOCK=shape.block, num_warps=shape.warps
        ),
        (shared.buffer,),
        before=lambda: shared.buffer.copy_(source),
    )
