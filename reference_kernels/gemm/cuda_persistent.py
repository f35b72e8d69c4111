"""CUDA C++, step 6: warpgroups with roles, tiles by TMA, a grid that stays.

Against cuda-wgmma: no thread computes an address any more. One warpgroup asks the copy engine for
tiles, four to six stages ahead, and two multiply; its registers go to them. The grid is as large as
the GPU, so that the next tile of C is on its way while this one leaves, which it does in whole
rows, by TMA too. Two blocks of a cluster may bring half of a tile of B each, for both.

FLOPs: 2 M N K on the tensor cores, M, N, K rounded up to the tile.
Bytes: compulsory. Expected: compulsory, as cuda-tensor-core.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; CUTLASS's persistent
cooperative kernels.
"""

from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.hopper.product import (
    TILE_M,
    TILES,
    ProductTiles,
    b_map,
    compile_product,
    product_call,
    tile_depth,
)
from gpuprof.reference_kernels.hopper.program import require_hopper
from gpuprof.reference_kernels.hopper.tensor_maps import tile_map
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.reference_kernels.tuning import fastest
from gpuprof.roofline.cost_models.cost import Flops

_NAME = "cuda-persistent"


def prepare(problem: GemmProblem) -> Prepared:
    """Plain sizes whose rows are multiples of 16 bytes, as TMA wants."""
    if not problem.plain:
        raise UnsupportedError(f"{_NAME} has no groups and no epilogue")
    m, n, k = problem.m, problem.n, problem.k
    a, b, out = problem.a, problem.b, problem.new_output()
    stored_b = b if b.is_contiguous() else b.t()
    for tensor in (a, stored_b, out):
        if tensor.stride(0) * tensor.element_size() % 16:
            raise UnsupportedError(f"TMA needs rows of a multiple of 16 bytes, not {problem.size}")
    require_hopper(_NAME, problem.device)
    depth = tile_depth(a.element_size())
    a_map = tile_map(a, (TILE_M, depth))
    calls = {
        tiles: product_call(
            compile_product(tiles, dtype=problem.dtype, b_along_k=not b.is_contiguous()),
            tiles,
            (a_map, b_map(b, tiles)),
            out,
            (m, n, k),
        )
        for tiles in TILES
    }
    tiles: ProductTiles = fastest(TILES, lambda chosen: calls[chosen]())
    executed = Flops("matmul", problem.dtype, tiles.padded_flops(m, n, k, depth))
    return Prepared(calls[tiles], (out,), executed_flops=(executed,), note=str(tiles))
