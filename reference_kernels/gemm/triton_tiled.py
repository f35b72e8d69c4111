"""Triton: one tile of C a program, operands through a software pipeline.

Against cuda-tensor-core: the same plan in a tenth of the lines. Triton lays out the shared memory,
pipelines the loads (cp.async) and, on Hopper, multiplies with wgmma: four warps issue one
instruction that reads both tiles from shared memory itself, at the tensor cores' full rate. Tiles
of 128 x 256 halve the shared-memory traffic of 128 x 128. The configuration is the fastest of a
few, tried when the version is prepared.

FLOPs: 2 M N K on the tensor cores (fp32: on the FP32 units), M, N and K rounded up to the tile.
Bytes: compulsory. Expected: compulsory; tiles are taken in an order that keeps a wave's operands in
the L2.
Measured: FLOPs exact. Read 2.78 times compulsory in bf16, 2.14 in fp8, 2.47 in int8, 5.6 in fp32
with its small tiles: bands of tiles walk along all of B, as in cuda-tensor-core. Written 0.78 to
0.95 times.

Source: Tillet, Kung and Cox, "Triton", MAPL 2019; Triton's tutorial 03, for the order of tiles.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import torch
import triton
import triton.language as tl

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.gemm.tiles import SMALL, Tiling, tile_at
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest
from gpuprof.roofline.cost_models.cost import Flops

_GROUP = 8
_SIXTEEN_BIT = (
    Tiling(128, 256, 64, warps=8, stages=3),
    Tiling(128, 256, 64, warps=8, stages=4),
    Tiling(128, 128, 64, warps=4, stages=4),
    Tiling(64, 128, 64, warps=4, stages=4),
)
_CONFIGURATIONS = {
    "bf16": _SIXTEEN_BIT,
    "fp16": _SIXTEEN_BIT,
    "fp8": (
        Tiling(128, 256, 128, warps=8, stages=3),
        Tiling(128, 128, 128, warps=4, stages=4),
    ),
    "int8": (
        Tiling(128, 256, 128, warps=8, stages=3),
        Tiling(128, 128, 128, warps=4, stages=4),
    ),
    "tf32": (
        Tiling(128, 256, 32, warps=8, stages=3),
        Tiling(128, 128, 32, warps=4, stages=4),
    ),
    "fp32": (Tiling(64, 64, 16, warps=4, stages=3), Tiling(64, 128, 16, warps=8, stages=3)),
}


@triton.jit
def _multiply(
    a_base,
    b_base,
    c_base,
    m,
    n,
    k,
    b_row_stride,
    b_column_stride,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
    SUM_DTYPE: tl.constexpr,
):
    tile_row, tile_column = tile_at(tl.program_id(0), tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N), GROUP)
    rows = tile_row * TILE_M + tl.arange(0, TILE_M)
    columns = tile_column * TILE_N + tl.arange(0, TILE_N)
    depths = tl.arange(0, TILE_K)
    a_at = a_base + rows.to(tl.int64)[:, None] * k + depths[None, :]
    b_at = b_base + depths[:, None] * b_row_stride + columns.to(tl.int64)[None, :] * b_column_stride
    sums = tl.zeros((TILE_M, TILE_N), dtype=SUM_DTYPE)
    for start in range(0, k, TILE_K):
        if EVEN:
            a = tl.load(a_at)
            b = tl.load(b_at)
        else:
            inside = start + depths < k
            a = tl.load(a_at, mask=(rows < m)[:, None] & inside[None, :], other=0.0)
            b = tl.load(b_at, mask=inside[:, None] & (columns < n)[None, :], other=0.0)
        sums = tl.dot(a, b, sums, input_precision=PRECISION, out_dtype=SUM_DTYPE)
        a_at += TILE_K
        b_at += TILE_K * b_row_stride
    c_at = c_base + rows.to(tl.int64)[:, None] * n + columns[None, :]
    result = sums.to(c_base.dtype.element_ty)
    if EVEN:
        tl.store(c_at, result)
    else:
        tl.store(c_at, result, mask=(rows < m)[:, None] & (columns < n)[None, :])


def prepare(problem: GemmProblem) -> Prepared:
    """Any plain size; on a CPU (Triton's interpreter) with one small tile."""
    if not problem.plain:
        raise UnsupportedError("triton-tiled has no groups and no epilogue")
    problem.require_fp8_units()
    m, n, k = problem.m, problem.n, problem.k
    a, b, out = problem.a, problem.b, problem.new_output()

    def run(tiling: Tiling) -> None:
        even = m % tiling.tile_m == n % tiling.tile_n == k % tiling.tile_k == 0
        _multiply[(-(-m // tiling.tile_m) * -(-n // tiling.tile_n),)](
            a,
            b,
            out,
            m,
            n,
            k,
            b.stride(0),
            b.stride(1),
            TILE_M=tiling.tile_m,
            TILE_N=tiling.tile_n,
            TILE_K=tiling.tile_k,
            GROUP=_GROUP,
            EVEN=even,
            PRECISION="ieee" if problem.dtype == "fp32" else "tf32",
            SUM_DTYPE=tl.int32 if out.dtype == torch.int32 else tl.float32,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )

    on_gpu = problem.device.type == "cuda"
    tiling = fastest(_CONFIGURATIONS[problem.dtype], run) if on_gpu else SMALL
    executed = Flops("matmul", problem.dtype, tiling.padded_flops(m, n, k))
    return Prepared(lambda: run(tiling), (out,), executed_flops=(executed,), note=str(tiling))
