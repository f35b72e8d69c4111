"""torch's own operator, where it has a fused one: gelu.

FLOPs: those of the definition; an H100 executes 4.0 times as many, the error function being a
polynomial. Bytes: compulsory.
torch has no fused swiglu and no rotary embedding.
"""

import torch

from gpuprof.reference_kernels.elementwise.problem import ElementwiseProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError


def prepare(problem: ElementwiseProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    if problem.operation != "gelu":
        raise UnsupportedError(f"torch has no fused operator for {problem.operation}")
    output = problem.empty_output()
    return Prepared(lambda: torch.ops.aten.gelu.out(problem.input, out=output), (output,))
