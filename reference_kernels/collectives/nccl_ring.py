"""All-reduce by NCCL along a ring: 2 (N-1) steps, 2 (N-1) / N of the message over each link.

The algorithm of Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (2009).
"""

from gpuprof.reference_kernels.collectives.nccl_algorithm import prepare_with_algorithm
from gpuprof.reference_kernels.suite import Prepared, Problem


def prepare(problem: Problem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    return prepare_with_algorithm(problem, "Ring")
