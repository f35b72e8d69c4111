"""A product of tiles by TMA and wgmma, of plain operands or of windows of images."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from gpuprof.reference_kernels.hopper.program import (
    ALIGNMENT_BYTES,
    THREADS,
    compile_kernel,
)
from gpuprof.reference_kernels.hopper.tensor_maps import tile_map
from gpuprof.reference_kernels.multiprocessors import multiprocessors
from gpuprof.reference_kernels.nvrtc import CudaKernel

TILE_M = 128
# Bytes of a row of a tile.
_ROW_BYTES = 128
# C leaves through two blocks of 64 x 64 for each of two warpgroups.
_C_BLOCK = (64, 64)
_STAGING_BYTES = 4 * 64 * _ROW_BYTES


@dataclass(frozen=True)
class ProductTiles:
    """Columns of a tile of C, blocks of a cluster that share B, stages of the pipeline."""

    tile_n: int
    cluster: int
    stages: int

    def __str__(self) -> str:
        shared = ", B shared by two" if self.cluster == 2 else ""
        return f"tiles of {TILE_M} x {self.tile_n}{shared}, {self.stages} stages"

    @property
    def shared_memory_bytes(self) -> int:
        tiles = self.stages * (TILE_M + self.tile_n) * _ROW_BYTES
        return tiles + _STAGING_BYTES + ALIGNMENT_BYTES

    def padded_flops(self, m: int, n: int, k: int, tile_k: int) -> int:
        """FLOPs of all whole tiles of an M x N x K product."""
        sizes = ((m, TILE_M * self.cluster), (n, self.tile_n), (k, tile_k))
        product = 2
        for size, tile in sizes:
            product *= -(-size // tile) * tile
        return product


# What two clusters and eight stages of 16 KiB leave room for.
TILES = (
    ProductTiles(256, cluster=1, stages=4),
    ProductTiles(256, cluster=2, stages=4),
    ProductTiles(128, cluster=1, stages=6),
    ProductTiles(128, cluster=2, stages=6),
)
# Rows of tiles that run side by side, so that what is read lies in the L2.
_GROUP_ROWS = 16


def tile_depth(element_bytes: int) -> int:
    """Numbers along K that a tile holds."""
    return _ROW_BYTES // element_bytes


def compile_product(
    tiles: ProductTiles, *, dtype: str, b_along_k: bool, windows: bool = False
) -> CudaKernel:
    """The kernel for operands in "bf16", "fp16" or "fp8" (e4m3, C in bf16); needs no GPU."""
    return compile_kernel(
        Path(__file__).with_name("product.cu"),
        "product",
        BF16=int(dtype != "fp16"),
        FP8=int(dtype == "fp8"),
        B_ALONG_K=int(b_along_k),
        WINDOWS=int(windows),
        TILE_N=tiles.tile_n,
        CLUSTER=tiles.cluster,
        STAGES=tiles.stages,
        GROUP_TILES=_GROUP_ROWS // tiles.cluster,
    )


def b_map(b: torch.Tensor, tiles: ProductTiles) -> torch.Tensor:
    """Of `b` [K, N], or of a transposed view of [N, K]."""
    depth = tile_depth(b.element_size())
    if b.is_contiguous():
        return tile_map(b, (depth, 64))
    return tile_map(b.t(), (tiles.tile_n // tiles.cluster, depth))


def product_call(
    kernel: CudaKernel,
    tiles: ProductTiles,
    operands: tuple[torch.Tensor, torch.Tensor],
    out: torch.Tensor,
    sizes: tuple[int, int, int],
    windows: tuple[int, ...] = (),
) -> Callable[[], None]:
    """A call of `kernel` on the tensor maps of A and B into `out` [M, N], which must live on.

    `sizes`: M, N and K. `windows`: what the kernel is told of A's images, where it has some.
    """
    m, n, _ = sizes
    rows = -(-m // (TILE_M * tiles.cluster))
    clusters = min(multiprocessors(out.device) // tiles.cluster, rows * -(-n // tiles.tile_n))
    return partial(
        kernel.launch,
        (clusters * tiles.cluster, 1, 1),
        (THREADS, 1, 1),
        *operands,
        tile_map(out, _C_BLOCK),
        *map(np.int32, (*sizes, *windows)),
        shared_memory_bytes=tiles.shared_memory_bytes,
        cluster=tiles.cluster,
    )
