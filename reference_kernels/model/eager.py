"""The decoder operator by operator.

FLOPs: those of the definition; torch's attention works on whole tiles of a causal diagonal, and its
CPU and math backends on masked pairs too. Bytes: compulsory, and each operator's result written and
read by the next; at B S = 2048 most of these stay in an L2 of 50 MB, so that what reaches DRAM lies
between the two and no expectation is given. Decoding moves the weights, and little else.
"""

from gpuprof.reference_kernels.library_outputs import adopt, empty_outputs
from gpuprof.reference_kernels.model.problem import ModelProblem
from gpuprof.reference_kernels.model.solving import make_solve
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ModelProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    solve = make_solve(problem)
    outputs = empty_outputs(len(solve()), problem.device)
    return Prepared(lambda: adopt(outputs, solve()), outputs)
