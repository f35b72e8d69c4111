"""Shapes and element types of an operator's arguments as people write them.

An analysis holds them as the trace does, as two lists: `[[4096, 11008], [11008, 4096]]
["c10::BFloat16", "c10::BFloat16"]`, or as the first alone. People write `4096x11008, 11008x4096
bf16`, and for a product of two matrices the three sizes alone: `4096x11008x4096 bf16`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from gpuprof.roofline import dtypes

_Shape: TypeAlias = Sequence[int]
# Tensors of one argument list that are named one by one.
_MOST_OF_A_LIST = 2
# Tensors of one shape beside each other that are named one by one.
_MOST_ALIKE = 2
# Characters of a recorded text that a report shows; JSON has all.
_LONGEST_RECORDED = 1_000
# Apart from the x between sizes.
_TIMES = "\N{MULTIPLICATION SIGN}"
# Operators whose last two matrices are multiplied with each other.
_PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm"})


def readable_shapes(detail: str, operator: str = "") -> str:
    """The tensors of `detail`; what is not in the form of a trace stays as it is."""
    parsed = _parsed(detail)
    if parsed is None:
        return detail
    tensors = [
        (text, type_text)
        for shape, type_text in zip(*parsed, strict=True)
        if (text := _shape_text(shape))
    ]
    if not tensors:
        return ""
    product = _product(operator, parsed[0])
    names = [_type_name(type_text) for _, type_text in tensors]
    if product and len(set(names)) == 1:
        return f"{product} {names[0]}".rstrip()
    parts = []
    # Neighbours of one type share its name.
    for name, group in groupby(zip(tensors, names, strict=True), key=lambda pair: pair[1]):
        shapes = ", ".join(_counted(text for (text, _), _ in group))
        parts.append(f"{shapes} {name}".rstrip())
    return ", ".join(parts)


def recorded_shapes(detail: str) -> str:
    """`detail` as recorded, cut off where lists of hundreds of tensors would fill a page."""
    return detail if len(detail) <= _LONGEST_RECORDED else f"{detail[:_LONGEST_RECORDED]}..."


def _counted(texts: Iterable[str]) -> Iterator[str]:
    """`texts` with many equal neighbours as one, their number in front."""
    for text, group in groupby(texts):
        number = len(list(group))
        if number <= _MOST_ALIKE:
            yield from [text] * number
        else:
            yield f"{number} {_TIMES} {text}"


def _parsed(detail: str) -> tuple[list[Any], list[str]] | None:
    decoder = json.JSONDecoder()
    try:
        shapes, end = decoder.raw_decode(detail)
        if isinstance(shapes, list) and not detail[end:].strip():
            return shapes, [""] * len(shapes)
        types, rest = decoder.raw_decode(detail[end:].lstrip())
    except ValueError:
        return None
    alike = isinstance(shapes, list) and isinstance(types, list) and len(shapes) == len(types)
    whole = not detail[end:].lstrip()[rest:].strip()
    if not (alike and whole and all(isinstance(name, str) for name in types)):
        return None
    return shapes, types


def _shape_text(shape: Any) -> str:
    """One argument: a tensor, a list of tensors, or "" for what has no size."""
    if _is_shape(shape):
        return "x".join(map(str, shape))
    if isinstance(shape, list) and shape and all(_is_shape(inner) for inner in shape):
        if len(shape) <= _MOST_OF_A_LIST:
            return f"({', '.join(map(_shape_text, shape))})"
        largest = max(shape, key=_elements)
        return f"{len(shape)} tensors up to {_shape_text(largest)}"
    return ""


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and bool(shape) and all(isinstance(n, int) for n in shape)


def _elements(shape: _Shape) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _product(operator: str, shapes: Sequence[Any]) -> str:
    """ "MxKxN" of the two matrices that `operator` multiplies, "BxMxKxN" of batches; else ""."""
    matrices = [shape for shape in shapes if _is_shape(shape) and len(shape) > 1][-2:]
    if operator not in _PRODUCTS or len(matrices) != 2:
        return ""
    left, right = matrices
    if left[:-2] != right[:-2] or left[-1] != right[-2]:
        return ""
    return "x".join(map(str, (*left, right[-1])))


def _type_name(text: str) -> str:
    """ "bf16" of "c10::BFloat16" and of a list of such; "" of what the table does not know."""
    dtype = dtypes.parse(text)
    if dtypes.is_tensor_list(text):
        found = set(dtypes.list_dtypes(text, 1))
        dtype = found.pop() if len(found) == 1 else None
    if dtype is None:
        return ""
    return dtype.precision if dtype.kind == "float" else dtype.name
