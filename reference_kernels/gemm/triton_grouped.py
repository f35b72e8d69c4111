"""Mixture of experts in Triton: the tiles of all groups' products in one persistent kernel.

One launch a group would leave the GPU idle at the end of each and the host waiting for the groups'
sizes. Here a fixed number of programs walks through the tiles of all groups: each program counts
tiles group by group, from the ends that lie in device memory, until it meets the next of its own.

FLOPs: 2 M N K, each group's rows rounded up to the tile.
Bytes: compulsory: A, every group's B, C. Expected: compulsory.
Measured: at 8g4096x4096x4096: FLOPs exact; read 1.08 times compulsory, for torch-grouped's reason;
written 0.92 times.

Source: Triton's tutorial 08, grouped GEMM; CUTLASS's grouped GEMM.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import triton
import triton.language as tl

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.gemm.tiles import SMALL, Tiling, tile_at
from gpuprof.reference_kernels.multiprocessors import multiprocessors
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest
from gpuprof.roofline.cost_models.cost import Flops

_GROUP = 8
_CONFIGURATIONS = (
    Tiling(128, 256, 64, warps=8, stages=3),
    Tiling(128, 128, 64, warps=4, stages=4),
    Tiling(64, 128, 64, warps=4, stages=4),
)
_CPU_PROGRAMS = 2


@triton.jit
def _multiply_groups(
    a_base,
    b_base,
    c_base,
    ends_base,
    n,
    k,
    groups,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    tiles_n = tl.cdiv(n, TILE_N)
    tile = tl.program_id(0)
    passed = 0
    group_start = 0
    for group in range(groups):
        group_end = tl.load(ends_base + group)
        tiles_m = tl.cdiv(group_end - group_start, TILE_M)
        while tile < passed + tiles_m * tiles_n:
            tile_row, tile_column = tile_at(tile - passed, tiles_m, tiles_n, GROUP)
            rows = group_start + tile_row * TILE_M + tl.arange(0, TILE_M)
            columns = tile_column * TILE_N + tl.arange(0, TILE_N)
            depths = tl.arange(0, TILE_K)
            a_at = a_base + rows.to(tl.int64)[:, None] * k + depths[None, :]
            b_at = b_base + depths[:, None] * n + columns[None, :]
            row_mask = (rows < group_end)[:, None]
            column_mask = (columns < n)[None, :]
            sums = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
            for start in range(0, k, TILE_K):
                inside = start + depths < k
                a = tl.load(a_at, mask=row_mask & inside[None, :], other=0.0)
                b = tl.load(b_at, mask=inside[:, None] & column_mask, other=0.0)
                sums = tl.dot(a, b, sums)
                a_at += TILE_K
                b_at += TILE_K * n
            c_at = c_base + rows.to(tl.int64)[:, None] * n + columns[None, :]
            tl.store(c_at, sums.to(c_base.dtype.element_ty), mask=row_mask & column_mask)
            tile += tl.num_programs(0)
        passed += tiles_m * tiles_n
        group_start = group_end
        # Step by step: the experts' weights together easily pass 2^31 elements.
        b_base += n * k


def prepare(problem: GemmProblem) -> Prepared:
    """Only for sizes with groups."""
    if problem.offsets is None or problem.groups is None:
        raise UnsupportedError("triton-grouped needs a size with groups, as 8g4096x4096x4096")
    n, k, groups, offsets = problem.n, problem.k, problem.groups, problem.offsets
    a, b, out = problem.a, problem.b, problem.new_output()
    on_gpu = problem.device.type == "cuda"
    programs = multiprocessors(problem.device) if on_gpu else _CPU_PROGRAMS

    def run(tiling: Tiling) -> None:
        _multiply_groups[(programs,)](
            a,
            b,
            out,
            offsets,
            n,
            k,
            groups,
            TILE_M=tiling.tile_m,
            TILE_N=tiling.tile_n,
            TILE_K=tiling.tile_k,
            GROUP=_GROUP,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )

    tiling = fastest(_CONFIGURATIONS, run) if on_gpu else SMALL
    ends = offsets.tolist()
    rows = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    executed = sum(tiling.padded_flops(count, n, k) for count in rows)
    return Prepared(
        lambda: run(tiling),
        (out,),
        executed_flops=(Flops("matmul", problem.dtype, executed),),
        note=str(tiling),
    )
