"""The arithmetic of float32 products as kernels' names tell it: the table float32_products.toml."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

# Of kernels of one call that disagree the fastest sets the roof: the call can't be faster.
_FASTEST_FIRST: Final = ("fp16", "bf16", "tf32", "fp32")


class Float32Product(msgspec.Struct, frozen=True):
    """What ran the products of one call: a precision, and what a count in it does not say."""

    precision: str
    assumptions: tuple[str, ...] = ()


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    precision: str
    source: str
    note: str = ""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kernel: tuple[_Row, ...]


@cache
def _rows() -> tuple[tuple[re.Pattern[str], _Row], ...]:
    text = files("gpuprof.roofline.cost_models").joinpath("float32_products.toml").read_bytes()
    rows = msgspec.toml.decode(text, type=_Table).kernel
    return tuple((re.compile(row.pattern, re.IGNORECASE), row) for row in rows)


@cache
def _row(name: str) -> _Row | None:
    return next((row for pattern, row in _rows() if pattern.search(name)), None)


def tells_precision(name: str) -> bool:
    """Whether the kernel `name` tells the precision of a product of float32 operands."""
    return _row(name) is not None


def float32_product(kernels: Iterable[str]) -> Float32Product | None:
    """What the names of one call's kernels tell; None where they tell nothing."""
    rows = [row for name in kernels if (row := _row(name)) is not None]
    if not rows:
        return None
    found = sorted({row.precision for row in rows}, key=_FASTEST_FIRST.index)
    notes = {row.note for row in rows if row.note}
    if len(found) > 1:
        notes.add(f"its kernels ran in {' and '.join(found)}: all is counted as {found[0]}")
    return Float32Product(found[0], tuple(sorted(notes)))
