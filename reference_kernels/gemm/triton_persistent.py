"""Triton: one program a multiprocessor, which works through many tiles; operands by TMA.

Against triton-tiled: the tensor memory accelerator copies a whole tile for one instruction of one
thread, computes the addresses, swizzles the rows and fills with zeros past the edges, so the warps
spend their registers and issue slots on wgmma alone. The grid is as large as the GPU instead of as
C: no launch of a block between tiles, and the loads of the next tile start while the last of this
one are multiplied (the loop over tiles and the loop over K are flattened into one pipeline). C
leaves by TMA too, in two halves, so that its staging area in shared memory leaves room for the
pipeline.

FLOPs: 2 M N K on the tensor cores, M, N and K rounded up to the tile.
Bytes: compulsory. Expected: compulsory.
Measured: FLOPs exact. Read 2.86 times compulsory in bf16, 1.51 in fp8, for cuda-tensor-core's
reason; written 0.61 to 0.88 times.

Source: CUTLASS's persistent ping-pong kernels; Triton's tutorial 09, persistent matmul.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.gemm.tiles import SMALL, Tiling, tile_at
from gpuprof.reference_kernels.multiprocessors import multiprocessors
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest
from gpuprof.roofline.cost_models.cost import Flops

_GROUP = 8
_SIXTEEN_BIT = (
    Tiling(128, 256, 64, warps=8, stages=3),
    Tiling(128, 256, 64, warps=8, stages=4),
    Tiling(128, 128, 64, warps=4, stages=4),
)
_CONFIGURATIONS = {
    "bf16": _SIXTEEN_BIT,
    "fp16": _SIXTEEN_BIT,
    "fp8": (
        Tiling(128, 256, 128, warps=8, stages=3),
        Tiling(128, 256, 128, warps=8, stages=4),
        Tiling(128, 128, 128, warps=4, stages=4),
    ),
}
# On a CPU the interpreter runs the programs one after another.
_CPU_PROGRAMS = 2


@triton.jit
def _multiply(
    a_tiles,
    b_tiles,
    c_tiles,
    m,
    n,
    k,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    GROUP: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
):
    tiles_m = tl.cdiv(m, TILE_M)
    tiles_n = tl.cdiv(n, TILE_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        tile_row, tile_column = tile_at(tile, tiles_m, tiles_n, GROUP)
        row = tile_row * TILE_M
        column = tile_column * TILE_N
        sums = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
        for step in range(tl.cdiv(k, TILE_K)):
            a = a_tiles.load([row, step * TILE_K])
            if B_TRANSPOSED:
                b = b_tiles.load([column, step * TILE_K]).T
            else:
                b = b_tiles.load([step * TILE_K, column])
            sums = tl.dot(a, b, sums)
        halves = tl.permute(tl.reshape(sums, (TILE_M, 2, TILE_N // 2)), (0, 2, 1))
        left, right = tl.split(halves)
        c_tiles.store([row, column], left.to(c_tiles.dtype))
        c_tiles.store([row, column + TILE_N // 2], right.to(c_tiles.dtype))


def prepare(problem: GemmProblem) -> Prepared:
    """Plain sizes whose rows are multiples of 16 bytes, as TMA wants."""
    if not problem.plain:
        raise UnsupportedError("triton-persistent has no groups and no epilogue")
    m, n, k = problem.m, problem.n, problem.k
    a, b, out = problem.a, problem.b, problem.new_output()
    b_transposed = not b.is_contiguous()
    stored_b = b.t() if b_transposed else b
    for tensor in (a, stored_b, out):
        if tensor.stride(0) * tensor.element_size() % 16:
            raise UnsupportedError(f"TMA needs rows of a multiple of 16 bytes, not {problem.size}")
    on_gpu = problem.device.type == "cuda"
    programs = multiprocessors(problem.device) if on_gpu else _CPU_PROGRAMS

    def run(tiling: Tiling) -> None:
        b_tile = [tiling.tile_k, tiling.tile_n]
        tiles = -(-m // tiling.tile_m) * -(-n // tiling.tile_n)
        _multiply[(min(programs, tiles),)](
            TensorDescriptor.from_tensor(a, [tiling.tile_m, tiling.tile_k]),
            TensorDescriptor.from_tensor(stored_b, b_tile[::-1] if b_transposed else b_tile),
            TensorDescriptor.from_tensor(out, [tiling.tile_m, tiling.tile_n // 2]),
            m,
            n,
            k,
            TILE_M=tiling.tile_m,
            TILE_N=tiling.tile_n,
            TILE_K=tiling.tile_k,
            GROUP=_GROUP,
            B_TRANSPOSED=b_transposed,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )

    tiling = fastest(_CONFIGURATIONS[problem.dtype], run) if on_gpu else SMALL
    executed = Flops("matmul", problem.dtype, tiling.padded_flops(m, n, k))
    return Prepared(lambda: run(tiling), (out,), executed_flops=(executed,), note=str(tiling))
