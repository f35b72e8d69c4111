"""One row times B in Triton, the sum over K split among programs.

A program a block of columns would leave most of the GPU idle: 4096 columns are 32 blocks of 128,
on 132 multiprocessors. So K is cut too: each program sums its part of the rows of B for its
columns, keeping several rows in flight to cover DRAM's latency, and a second kernel adds the parts.
They are small (splits x N float32) and stay in the L2.

FLOPs: 2 N K on the FP32 units; adding the parts takes 1/K of that for each split.
Bytes: compulsory. Expected: compulsory.
Measured: at 1x14336x4096, bf16: FLOPs within 2 %, read within 1 %; written as torch-gemv.

Source: "Flash-Decoding" (Dao et al., 2023) splits attention's one row likewise; split-K of cuBLAS.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest
from gpuprof.roofline.cost_models.cost import Flops


@dataclass(frozen=True)
class _Cut:
    """K in `splits` parts; a program takes TILE_K rows of TILE_N columns at a time."""

    splits: int
    tile_n: int
    tile_k: int

    def __str__(self) -> str:
        return f"K in {self.splits} parts, {self.tile_k} x {self.tile_n} at a time"


_CUTS = (
    _Cut(8, 128, 32),
    _Cut(16, 128, 32),
    _Cut(8, 256, 16),
    _Cut(16, 256, 16),
    _Cut(16, 512, 8),
    _Cut(32, 512, 8),
)
_CPU_CUT = _Cut(3, 128, 32)
# A program of the second kernel.
_COLUMNS = 128


@triton.jit
def _sum_part(
    row_base, b_base, parts_base, n, k, part_k, TILE_N: tl.constexpr, TILE_K: tl.constexpr
):
    columns = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    part = tl.program_id(1)
    start = part * part_k
    end = tl.minimum(start + part_k, k)
    sums = tl.zeros((TILE_K, TILE_N), dtype=tl.float32)
    for first in tl.range(start, end, TILE_K):
        depths = first + tl.arange(0, TILE_K)
        x = tl.load(row_base + depths, mask=depths < end, other=0.0)
        b = tl.load(
            b_base + depths.to(tl.int64)[:, None] * n + columns[None, :],
            mask=(depths < end)[:, None] & (columns < n)[None, :],
            other=0.0,
        )
        sums += x.to(tl.float32)[:, None] * b.to(tl.float32)
    tl.store(parts_base + part * n + columns, tl.sum(sums, axis=0), mask=columns < n)


@triton.jit
def add_parts(parts_base, out_base, n, splits, TILE_N: tl.constexpr):
    """out = the sum of `splits` parts of `n` float32 each."""
    columns = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    sums = tl.zeros((TILE_N,), dtype=tl.float32)
    for part in range(splits):
        sums += tl.load(parts_base + part * n + columns, mask=columns < n, other=0.0)
    tl.store(out_base + columns, sums.to(out_base.dtype.element_ty), mask=columns < n)


def prepare(problem: GemmProblem) -> Prepared:
    """Only for M = 1."""
    if problem.m != 1 or not problem.plain:
        raise UnsupportedError("triton-gemv needs M = 1, no groups and no epilogue")
    n, k = problem.n, problem.k
    row, b, out = problem.a, problem.b, problem.new_output()
    on_gpu = problem.device.type == "cuda"
    most_splits = max(cut.splits for cut in _CUTS)
    parts = torch.empty(most_splits, n, device=problem.device, dtype=torch.float32)

    def run(cut: _Cut) -> None:
        blocks = -(-n // cut.tile_n)
        part_k = -(-k // cut.splits // cut.tile_k) * cut.tile_k
        splits = -(-k // part_k)
        _sum_part[(blocks, splits)](
            row, b, parts, n, k, part_k, TILE_N=cut.tile_n, TILE_K=cut.tile_k
        )
        add_parts[(-(-n // _COLUMNS),)](parts, out, n, splits, TILE_N=_COLUMNS)

    cut = fastest(_CUTS, run) if on_gpu else _CPU_CUT
    # What runs is arithmetic of float32 on the vector units, whatever the operands' dtype.
    executed = Flops("vector", "fp32", 2 * n * k + n * cut.splits)
    return Prepared(lambda: run(cut), (out,), executed_flops=(executed,), note=str(cut))
