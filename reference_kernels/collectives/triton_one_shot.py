"""One-shot all-reduce in Triton: one kernel in which each rank reads the whole message of all.

(N-1) times the message arrives over each rank's links, against 2 (N-1) / N for a ring, but after
one exchange instead of 2 (N-1): it wins where latency binds. Expected bytes of a rank's memory: its
message read by each of N ranks, and one written. FLOPs: (N-1) additions an element on every rank.
The idea is that of the custom all-reduce of TensorRT-LLM and vLLM.
"""

from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.collectives.symmetric_memory import share
from gpuprof.reference_kernels.collectives.triton_launch import launch_shape
from gpuprof.reference_kernels.suite import Prepared, Problem
from gpuprof.roofline.cost_models.cost import Flops


def prepare(problem: Problem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    from gpuprof.reference_kernels.collectives.triton_kernels import one_shot

    assert isinstance(problem, CollectiveProblem)
    problem.need("all-reduce")
    shared, output, source = share(problem), problem.output(), problem.input
    shape = launch_shape(problem.elements, problem.ranks, shared.signals)
    arguments = (
        shared.buffer_table,
        shared.offset_bytes,
        shared.signal_table,
        output,
        problem.elements,
        problem.rank,
    )
    return Prepared(
        lambda: one_shot[(shape.blocks,)](
            *arguments, RANKS=problem.ranks, BLOCK=shape.block, num_warps=shape.warps
        ),
        (output,),
        before=lambda: shared.buffer.copy_(source),
        executed_flops=(Flops("vector", problem.dtype, (problem.ranks - 1) * problem.elements),),
        expected_bytes_read=problem.ranks * problem.message_bytes,
        expected_bytes_written=problem.message_bytes,
    )
