"""An NCCL communicator that knows one algorithm for all-reduce only."""

import os
from functools import cache

import torch
import torch.distributed as dist

from gpuprof.reference_kernels.collectives.library import prepare_library
from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.suite import Prepared, Problem

_VARIABLE = "NCCL_ALGO"


def prepare_with_algorithm(problem: Problem, algorithm: str) -> Prepared:
    """All-reduce by NCCL with `algorithm`, one of NCCL_ALGO's names."""
    assert isinstance(problem, CollectiveProblem)
    problem.need("all-reduce")
    return prepare_library(
        problem, group_with_algorithm(algorithm, problem.device), f"NCCL_ALGO={algorithm}"
    )


@cache
def group_with_algorithm(algorithm: str, device: torch.device) -> dist.ProcessGroup:
    """A group of all ranks whose communicator was made under NCCL_ALGO=`algorithm`.

    NCCL reads the variable when it makes a communicator, which the group's first collective does.
    """
    former = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = algorithm
    try:
        group: dist.ProcessGroup = dist.new_group(backend="nccl")
        dist.all_reduce(torch.zeros(1, device=device), group=group)
        torch.cuda.synchronize()
    finally:
        if former is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = former
    return group
