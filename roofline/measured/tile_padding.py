"""Products whose sizes a kernel fills up to its tiles, which run whole.

The tile and the cluster stand in the kernel's name. Blocks of a cluster share their tiles, so a
result has whole clusters of them. A name does not say which side of the tile lies along the rows.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpuprof.roofline.cost_models.cost import MatrixProduct
from gpuprof.roofline.kernel_names.decode import KernelName, decode

# "128x64x32" or "320x128_64x3", of names that no table decodes.
_TILE: Final = re.compile(r"(?<![0-9])(\d{1,3})x(\d{1,3})(?:x(\d{1,3})|_(\d{1,3})x)?")


@dataclass(frozen=True)
class Padding:
    """A product's sizes filled up to whole tiles, by one reading of the kernel's name."""

    tile: tuple[int, int]
    # Tiles that are filled up together, along rows and columns of the result.
    cluster: tuple[int, int]
    # The matrix FLOPs that run.
    flops: int
    # Those of the product itself.
    needed: int

    @property
    def factor(self) -> float:
        """How many times the product's own FLOPs run."""
        return self.flops / self.needed

    @property
    def text(self) -> str:
        """For people: "192x192", "320x128 in clusters of 1x2"."""
        tile = "x".join(map(str, self.tile))
        if self.cluster == (1, 1):
            return tile
        return f"{tile} in clusters of {'x'.join(map(str, self.cluster))}"


def least_padding(kernel: str, product: MatrixProduct) -> Padding | None:
    """What certainly runs of `product`: by the reading of the name that fills up least.

    The name as the table decodes it. None where that tells no tile, or another algorithm.
    """
    name = decode(kernel)
    if name is None or name.function != "gemm" or name.algorithm:
        return None
    found = list(_of_tile(product, name.tile, _cluster(name)))
    return min(found, key=lambda each: each.flops, default=None)


def paddings(kernel: str, product: MatrixProduct) -> Iterator[Padding]:
    """All readings of the name of `kernel`, the plainest first."""
    name = decode(kernel)
    tiles: list[Sequence[int]] = [] if name is None else [name.tile]
    tiles += [
        (int(match[1]), int(match[2]), int(match[3] or match[4] or 1))
        for match in _TILE.finditer(kernel)
    ]
    clusters = dict.fromkeys(((1, 1), (1, 1) if name is None else _cluster(name)))
    for tile in dict.fromkeys(map(tuple, tiles)):
        for cluster in clusters:
            yield from _of_tile(product, tile, cluster)
            if len(tile) > 2 and tile[2]:
                deeper = math.ceil(product.inner / tile[2]) * tile[2]
                yield from _of_tile(product, tile, cluster, deeper)


def _cluster(name: KernelName) -> tuple[int, int]:
    return (name.cluster[0], name.cluster[1]) if len(name.cluster) >= 2 else (1, 1)


def _of_tile(
    product: MatrixProduct, tile: Sequence[int], cluster: tuple[int, int], inner: int | None = None
) -> Iterator[Padding]:
    """Both ways in which a tile can lie. `inner`: the depth with what it is filled up with."""
    sizes = (product.rows, product.inner, product.columns, product.batch)
    if len(tile) < 2 or 0 in (*tile[:2], *cluster, *sizes):
        return
    sides = tuple(zip(tile[:2], cluster, strict=True))
    for (height, tall), (width, wide) in (sides, sides[::-1]):
        rows, columns = (
            math.ceil(size / (side * blocks)) * side * blocks
            for size, side, blocks in ((product.rows, height, tall), (product.columns, width, wide))
        )
        depth = product.inner if inner is None else inner
        yield Padding(
            (tile[0], tile[1]),
            cluster,
            2 * product.batch * rows * columns * depth,
            2 * product.batch * product.rows * product.columns * product.inner,
        )
