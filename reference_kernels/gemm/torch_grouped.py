"""Mixture of experts: a product for each group of rows, by torch._grouped_mm.

All groups in one launch, their ends read on the device: the host need not know how many rows each
expert got.

FLOPs: 2 M N K, M the rows of all groups together.
Bytes: compulsory: A, every group's B, C. Expected: compulsory. With few rows a group it is the
experts' weights that count: 2 M / G FLOPs for each of their elements.
Measured: at 8g4096x4096x4096: FLOPs 1.31 times, as rows are padded to its tiles in each group; read
1.27 times compulsory, as a group's B is walked along by each band of its tiles; written 0.87 times.

Source: torch._grouped_mm (CUTLASS's grouped GEMM); Gale et al., "MegaBlocks", MLSys 2023.
"""

import torch

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError


def prepare(problem: GemmProblem) -> Prepared:
    """Only for sizes with groups."""
    if problem.offsets is None:
        raise UnsupportedError("torch-grouped needs a size with groups, as 8g4096x4096x4096")
    if not hasattr(torch, "_grouped_mm"):
        raise UnsupportedError(f"torch {torch.__version__} has no torch._grouped_mm")
    a, b, offsets, out = problem.a, problem.b, problem.offsets, problem.new_output()
    if problem.n % 8 or problem.k % 8:
        raise UnsupportedError(f"torch._grouped_mm needs N and K in 8s, not {problem.size}")

    def call() -> None:
        # It allocates its result and takes no place for it: `out` becomes that tensor, uncopied.
        out.data = torch._grouped_mm(a, b, offs=offsets)

    return Prepared(call, (out,))
