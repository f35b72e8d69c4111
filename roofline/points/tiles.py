"""Kernels that deal out the tiles of a product's result themselves.

A persistent kernel has one block for each multiprocessor, and each takes tiles until none is left:
its grid is full whatever the product. The tile stands in the kernel's name.
"""

import math
import re
from typing import Final

from gpuprof.roofline.cost_models.cost import MatrixProduct

# cuBLAS: nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT has tiles of 256 x 128; recorded grids are
# 2 x 66 for 132 multiprocessors at every product that is larger. Parts of the sum over K
# (splitK) are pieces of work too, and how many there are is not told.
_PERSISTENT: Final = re.compile(r"^nvjet_(?!.*split_?k)[a-z0-9_]*?_(\d+)x(\d+)_", re.IGNORECASE)


def tile_counts(kernel: str, product: MatrixProduct | None) -> tuple[int, ...]:
    """How many tiles the result of `product` has in `kernel`; () where that is not told.

    Two answers, as the name does not say which side of a tile lies along the rows.
    """
    match = _PERSISTENT.search(kernel)
    if match is None or product is None:
        return ()
    sides = int(match[1]), int(match[2])
    if 0 in (*sides, product.rows, product.columns, product.batch):
        return ()
    return tuple(
        product.batch * math.ceil(product.rows / height) * math.ceil(product.columns / width)
        for height, width in (sides, sides[::-1])
    )
