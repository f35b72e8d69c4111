"""Bias and activation inside the GEMM: C leaves the registers once, finished.

Against cublas with "+relu" or "+gelu": that version writes the product, reads it again and writes
the result; here cuBLASLt applies bias and activation to the accumulators before they are stored
(CUBLASLT_EPILOGUE_RELU_BIAS, _GELU_BIAS), which saves one read and one write of C and a launch.

FLOPs: 2 M N K on matrices; per element of C one for the bias, one (ReLU) or seven (GELU) more.
Bytes: compulsory. Expected: compulsory.
Measured: FLOPs exact, the activation's few on top. Read 2.24 times compulsory, as cublas and for
its reason; written 0.84 times.

Source: cuBLASLt documentation, cublasLtEpilogue_t; torch's own operator for it,
torch._addmm_activation.
"""

import torch

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError


def prepare(problem: GemmProblem) -> Prepared:
    """Only for problems with an epilogue."""
    if problem.bias is None:
        raise UnsupportedError("cublaslt-epilogue needs a size with +relu or +gelu")
    a, b, bias, out = problem.a, problem.b, problem.bias, problem.new_output()
    use_gelu = problem.epilogue == "gelu"
    return Prepared(
        lambda: torch._addmm_activation(bias, a, b, use_gelu=use_gelu, out=out),
        (out,),
    )
