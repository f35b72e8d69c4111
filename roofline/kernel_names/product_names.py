"""Names of operators and kernels that do products.

Those of known kernels are in kernel_names.toml, operators and all others in product_names.toml.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from gpuprof.roofline.kernel_names.decode import decode

_PRODUCTS: Final = ("gemm", "convolution", "attention")


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    product: tuple[_Row, ...]
    other: tuple[_Row, ...]


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What products are named, and what others are."""
    text = files("gpuprof.roofline.kernel_names").joinpath("product_names.toml").read_bytes()
    table = msgspec.toml.decode(text, type=_Table)
    products, others = (
        re.compile("|".join(row.pattern for row in rows), re.IGNORECASE)
        for rows in (table.product, table.other)
    )
    return products, others


def names_product(name: str) -> bool:
    """Whether an operator or kernel called `name` is one that does products summed along an axis.

    For work that has no cost model, and so nothing but its name to tell. What only prepares or
    finishes products, such as the sum of split-K parts, is none.
    """
    decoded = decode(name)
    if decoded is not None:
        return decoded.function in _PRODUCTS and not decoded.surrounds
    products, others = _patterns()
    return others.search(name) is None and products.search(name) is not None
