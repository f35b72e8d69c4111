"""One row times B, as a decoder multiplies its one token: torch.mv, cuBLAS's GEMV.

Every element of B is used once, so the product runs at memory bandwidth, with the arithmetic
intensity of one FLOP a byte (bf16) however large it is.

FLOPs: 2 N K. Bytes: compulsory, B's N K elements nearly all of them. Expected: compulsory.
Measured: FLOPs 8 times at 1x14336x4096, bf16, as the instruction that it uses multiplies eight
columns; read exact; written 2.4 MB instead of 28 KB, as with every version there: not these
outputs, but lines that the launch found in the L2.

Source: BLAS level 2, Dongarra et al., 1988.
"""

import torch

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError


def prepare(problem: GemmProblem) -> Prepared:
    """Only for M = 1."""
    if problem.m != 1 or not problem.plain:
        raise UnsupportedError("torch-gemv needs M = 1, no groups and no epilogue")
    matrix, row, out = problem.b.t(), problem.a[0], problem.new_output()
    return Prepared(lambda: torch.mv(matrix, row, out=out[0]), (out,))
