"""The eager decoder captured in a CUDA graph: the same kernels, launched by one call.

FLOPs and bytes: as eager. What it saves is the host's time between launches, which is most of a
decoding step.
"""

from collections.abc import Callable

import torch

from gpuprof.reference_kernels.model.problem import ModelProblem
from gpuprof.reference_kernels.model.solving import make_solve
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError

# Libraries make their handles and workspaces in their first calls, which cannot be captured.
_WARM_UP_CALLS = 3


def prepare(problem: ModelProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    if problem.device.type != "cuda":
        raise UnsupportedError("model/cuda-graph needs a GPU")
    solve = make_solve(problem)
    make_stream: Callable[..., torch.cuda.Stream] = torch.cuda.Stream
    beside = make_stream(problem.device)
    beside.wait_stream(torch.cuda.current_stream(problem.device))
    with torch.cuda.stream(beside):
        for _ in range(_WARM_UP_CALLS):
            solve()
    torch.cuda.current_stream(problem.device).wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = solve()
    return Prepared(graph.replay, tuple(output.detach() for output in outputs))
