"""At most 16 rows times B in Triton, as decoding a batch: B streams past, the sum split.

Against triton-tiled: with so few rows nothing is reused, and the product takes as long as reading
B. So tiles are narrow and K is cut, until there are several programs a multiprocessor with many
bytes in flight each; the rows are filled up to the 16 that one instruction of the tensor cores
takes. Parts of the sum are added by a second kernel, as in triton-gemv; where K is whole the first
writes C.

FLOPs: 2 M N K on the tensor cores, M rounded up to 16, N and K to the tile.
Bytes: compulsory. Expected: compulsory; the parts, splits x M x N float32, stay in the L2.

Source: "Flash-Decoding" (Dao et al., 2023) splits attention's one row likewise; split-K of cuBLAS.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.gemm.triton_gemv import add_parts
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest
from gpuprof.roofline.cost_models.cost import Flops

# The least that tl.dot takes.
_ROWS = 16


@dataclass(frozen=True)
class _Cut:
    """K in `splits` parts; a program takes TILE_K rows of TILE_N columns at a time."""

    splits: int
    tile_n: int
    tile_k: int
    stages: int
    warps: int = 4

    def __str__(self) -> str:
        parts = f"K in {self.splits} parts, {self.tile_k} x {self.tile_n} at a time"
        return f"{parts}, {self.stages} stages"


_CUTS = tuple(
    _Cut(splits, tile_n, tile_k, stages)
    for tile_n, tile_k, stages in ((32, 128, 5), (64, 128, 4), (128, 64, 4))
    for splits in (1, 2, 4, 8)
)
_CPU_CUT = _Cut(3, 32, 32, stages=1)
# Elements of C that a program of the second kernel adds.
_ADDED = 512


@triton.jit
def _multiply_part(
    a_base,
    b_base,
    to_base,
    m,
    n,
    k,
    part_k,
    ROWS: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    columns = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    part = tl.program_id(1)
    rows = tl.arange(0, ROWS)
    start = part * part_k
    end = tl.minimum(start + part_k, k)
    sums = tl.zeros((ROWS, TILE_N), dtype=tl.float32)
    for first in tl.range(start, end, TILE_K):
        depths = first + tl.arange(0, TILE_K)
        a = tl.load(
            a_base + rows[:, None] * k + depths[None, :],
            mask=(rows < m)[:, None] & (depths < end)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_base + depths.to(tl.int64)[:, None] * n + columns[None, :],
            mask=(depths < end)[:, None] & (columns < n)[None, :],
            other=0.0,
        )
        sums = tl.dot(a, b, sums)
    place = to_base + (part * m + rows)[:, None] * n + columns[None, :]
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(place, sums.to(to_base.dtype.element_ty), mask=inside)


def prepare(problem: GemmProblem) -> Prepared:
    """Only for at most 16 rows."""
    if problem.m > _ROWS or not problem.plain:
        raise UnsupportedError(f"triton-skinny needs M up to {_ROWS}, no groups and no epilogue")
    m, n, k = problem.m, problem.n, problem.k
    a, b, out = problem.a, problem.b, problem.new_output()
    on_gpu = problem.device.type == "cuda"
    most_splits = max(cut.splits for cut in (*_CUTS, _CPU_CUT))
    parts = torch.empty(most_splits, m, n, device=problem.device, dtype=torch.float32)

    def run(cut: _Cut) -> None:
        part_k = -(-k // cut.splits // cut.tile_k) * cut.tile_k
        splits = -(-k // part_k)
        _multiply_part[(-(-n // cut.tile_n), splits)](
            a,
            b,
            parts if splits > 1 else out,
            m,
            n,
            k,
            part_k,
            ROWS=_ROWS,
            TILE_N=cut.tile_n,
            TILE_K=cut.tile_k,
            num_warps=cut.warps,
            num_stages=cut.stages,
        )
        if splits > 1:
            add_parts[(-(-m * n // _ADDED),)](parts, out, m * n, splits, TILE_N=_ADDED)

    cut = fastest(_CUTS, run) if on_gpu else _CPU_CUT
    padded_n, padded_k = (
        -(-size // tile) * tile for size, tile in ((n, cut.tile_n), (k, cut.tile_k))
    )
    executed = (
        Flops("matmul", problem.dtype, 2 * _ROWS * padded_n * padded_k),
        Flops("vector", "fp32", m * n * cut.splits),
    )
    return Prepared(lambda: run(cut), (out,), executed_flops=executed, note=str(cut))
