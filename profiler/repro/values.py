"""Which values an argument may have: the table values.toml, and what it gives for one call."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from gpuprof.roofline.cost_models.call import Argument, Scalar, Tensor
from gpuprof.roofline.dtypes import DType, parse

_Kind = Literal["index", "offsets", "cumulative", "positive"]
_KEYWORDS: Final[Mapping[_Kind, str]] = {
    "index": "below",
    "offsets": "offsets_of",
    "cumulative": "cumulative_of",
}


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operators: tuple[str, ...]
    argument: str
    kind: _Kind
    source: str
    tensor: str = ""
    axis: int | None = None
    axis_argument: str = ""
    axes: Literal["", "last two"] = ""
    count_argument: str = ""
    # Of lists whose record has no type.
    dtype: str = ""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    values: tuple[_Row, ...]


@cache
def _table() -> tuple[_Row, ...]:
    text = files("gpuprof.profiler.repro").joinpath("values.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).values


def values_of(operator: str, argument: str, arguments: Mapping[str, Argument]) -> str | None:
    """How the script's `tensor` is told the values of `argument`: "", "below=32000", ...

    `arguments` are all of the call by name. None where the size that they depend on is not known.
    """
    row = _row(operator, argument)
    if row is None:
        return ""
    if row.kind == "positive":
        return "positive=True"
    size = _size(row, arguments)
    return None if size is None else f"{_KEYWORDS[row.kind]}={size}"


def dtype_of(operator: str, argument: str) -> DType | None:
    """The type that the tensors of `argument` always have; None where they may have several."""
    row = _row(operator, argument)
    return None if row is None else parse(row.dtype)


def _row(operator: str, argument: str) -> _Row | None:
    for row in _table():
        if row.argument == argument and any(fnmatchcase(operator, one) for one in row.operators):
            return row
    return None


def _size(row: _Row, arguments: Mapping[str, Argument]) -> int | None:
    if row.count_argument:
        return _integer(arguments.get(row.count_argument))
    tensor = arguments.get(row.tensor)
    if not isinstance(tensor, Tensor):
        return None
    if row.axes:
        return tensor.shape[-2] * tensor.shape[-1] if len(tensor.shape) > 1 else None
    axis = _integer(arguments.get(row.axis_argument)) if row.axis_argument else row.axis
    if axis is None:
        return None
    # Of one sample alone, a loss has its classes in the only axis.
    if row.axis is not None:
        axis = min(axis, len(tensor.shape) - 1)
    return tensor.shape[axis] if -len(tensor.shape) <= axis < len(tensor.shape) else None


def _integer(argument: Argument) -> int | None:
    try:
        return int(argument.text) if isinstance(argument, Scalar) else None
    except ValueError:
        return None
