"""How the Triton versions cut C into tiles, and in which order they take them."""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from dataclasses import dataclass

import triton
import triton.language as tl


@dataclass(frozen=True)
class Tiling:
    """One tile of C and how a program works on it: TILE_M x TILE_N, in steps of TILE_K."""

    tile_m: int
    tile_n: int
    tile_k: int
    warps: int
    stages: int

    def __str__(self) -> str:
        shape = f"{self.tile_m} x {self.tile_n} x {self.tile_k}"
        return f"tiles of {shape}, {self.warps} warps, {self.stages} stages"

    def padded_flops(self, m: int, n: int, k: int) -> int:
        """FLOPs of all whole tiles of an M x N x K product."""
        sizes = ((m, self.tile_m), (n, self.tile_n), (k, self.tile_k))
        product = 2
        for size, tile in sizes:
            product *= -(-size // tile) * tile
        return product


# For Triton's interpreter, which takes its time.
SMALL = Tiling(32, 32, 32, warps=4, stages=1)


@triton.jit
def tile_at(index, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of the tile with this index: down columns of GROUP tiles, not along rows.

    The programs that run at one time then cover a compact block of C and find each other's rows
    of A and columns of B in the L2.
    """
    in_band = GROUP * tiles_n
    band = index // in_band
    first = band * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    return first + index % in_band % rows, index % in_band // rows
