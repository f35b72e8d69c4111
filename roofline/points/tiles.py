"""Kernels that deal out the tiles of a product's result themselves.

A persistent kernel has one block for each multiprocessor, and each takes tiles until none is left:
its grid is full whatever the product. The tile stands in the kernel's name. Of cuBLAS's nvjet
recorded grids are 2 x 66 for 132 multiprocessors at every product that is larger.
"""

import math

from gpuprof.roofline.cost_models.cost import MatrixProduct
from gpuprof.roofline.kernel_names.decode import decode


def tile_counts(kernel: str, product: MatrixProduct | None) -> tuple[int, ...]:
    """How many tiles the result of `product` has in `kernel`; () where that is not told.

    Two answers, as the name does not say which side of a tile lies along the rows. Parts of a sum
    over the depth (split-K) are pieces of work too, and how many there are is not told.
    """
    name = decode(kernel)
    if name is None or not name.persistent or name.algorithm or product is None:
        return ()
    sides = name.tile[:2]
    if len(sides) < 2 or 0 in (*sides, product.rows, product.columns, product.batch):
        return ()
    return tuple(
        product.batch * math.ceil(product.rows / height) * math.ceil(product.columns / width)
        for height, width in (sides, sides[::-1])
    )
