"""All-reduce by NCCL along two binary trees, each with half of the message, between nodes; within
a node the ranks form a chain.

The algorithm of Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast,
reduction and scan (2009).
"""

from gpuprof.reference_kernels.collectives.nccl_algorithm import prepare_with_algorithm
from gpuprof.reference_kernels.suite import Prepared, Problem


def prepare(problem: Problem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    return prepare_with_algorithm(problem, "Tree")
