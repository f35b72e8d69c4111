"""The arithmetic of products as kernels' names tell it: the table product_arithmetic.toml."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

# Of kernels of one call that disagree the fastest sets the roof: the call can't be faster.
_FASTEST_FIRST: Final = ("fp16", "bf16", "tf32", "fp32")


class ProductArithmetic(msgspec.Struct, frozen=True):
    """What ran the products of one call."""

    # The precision of products of float32 operands.
    float32: str
    # Whether any kernel used tensor cores; None where the names do not tell.
    tensor_cores: bool | None = None
    # What a count of float32 products in that precision does not say.
    notes: tuple[str, ...] = ()


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    float32: str
    source: str
    tensor_cores: bool | None = None
    note: str = ""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kernel: tuple[_Row, ...]


@cache
def _rows() -> tuple[tuple[re.Pattern[str], _Row], ...]:
    text = files("gpuprof.roofline.kernel_names").joinpath("product_arithmetic.toml").read_bytes()
    rows = msgspec.toml.decode(text, type=_Table).kernel
    return tuple((re.compile(row.pattern, re.IGNORECASE), row) for row in rows)


@cache
def telling_row(kernel: str) -> int | None:
    """The index of the row of the table that the name of `kernel` matches; None for no row."""
    rows = enumerate(_rows())
    return next((index for index, (pattern, _) in rows if pattern.search(kernel)), None)


def product_arithmetic(kernels: Iterable[str]) -> ProductArithmetic | None:
    """What the names of one call's kernels tell; None where they tell nothing."""
    rows = [row for name in kernels if (row := telling_row(name)) is not None]
    return arithmetic_of_rows(rows) if rows else None


def arithmetic_of_rows(indices: Iterable[int]) -> ProductArithmetic:
    """What kernels tell whose names match these rows, at least one."""
    rows = [_rows()[index][1] for index in indices]
    found = sorted({row.float32 for row in rows}, key=_FASTEST_FIRST.index)
    notes = {row.note for row in rows if row.note}
    if len(found) > 1:
        notes.add(f"its kernels ran in {' and '.join(found)}: all is counted as {found[0]}")
    told = [row.tensor_cores for row in rows if row.tensor_cores is not None]
    return ProductArithmetic(found[0], any(told) if told else None, tuple(sorted(notes)))
