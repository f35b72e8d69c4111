"""Calls of operators as text, the same from a trace and from a running program.

"aten::mm float32[4, 8], float32[8, 2]" names a call far more exactly than its operator does: a
program has many products, each of its own sizes.
"""

import json
from typing import Any

from gpuprof.roofline import dtypes


def call_text(op: str, tensors: str, *, backward: bool) -> str:
    """A call with its tensors, as `tensor_text` writes them; without them any call of `op`."""
    return f"{op} {tensors}".rstrip() + (" in the backward pass" if backward else "")


def tensor_text(dtype: str, sizes: list[int]) -> str:
    """One tensor. `dtype` is torch's name; "" in a list of tensors, where traces have none.

    "" for one without dimensions: in a trace a Python number is one too.
    """
    return f"{dtype}{sizes}" if sizes else ""


def tensors_of(shapes: str) -> str | None:
    """The tensors in `shapes`, sizes and types as an analysis has them; None where it has none.

    `[[128, 64], []] ["float", "Scalar"]` gives "float32[128, 64]".
    """
    decoder = json.JSONDecoder()
    try:
        sizes, end = decoder.raw_decode(shapes)
        types, _ = decoder.raw_decode(shapes[end:].lstrip())
        found = [_texts(*argument) for argument in zip(sizes, types, strict=True)]
    except (ValueError, TypeError):
        return None
    return ", ".join(text for texts in found for text in texts if text)


def _texts(sizes: list[Any], type_name: str) -> list[str]:
    if dtypes.is_tensor_list(type_name):
        return [tensor_text("", one) for one in sizes]
    dtype = dtypes.parse(type_name)
    return [] if dtype is None else [tensor_text(dtype.name, sizes)]
