"""Every collective by gloo, over sockets or shared memory of the host."""

from gpuprof.reference_kernels.collectives.library import prepare_library
from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.suite import Prepared, Problem


def prepare(problem: Problem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    assert isinstance(problem, CollectiveProblem)
    return prepare_library(problem)
