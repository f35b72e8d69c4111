"""A recorded call as Python: which overload of torch.ops it is, and each argument as text."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from keyword import iskeyword
from math import isfinite
from typing import Any, Final

import torch

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.repro.values import dtype_of, values_of
from gpuprof.roofline import dtypes
from gpuprof.roofline.cost_models.call import Argument, OpCall, Scalar, Tensor, TensorList
from gpuprof.roofline.dtypes import DType

# Of the schema's types, those whose values torch's profiler leaves out.
_NOT_RECORDED: Final = frozenset({"Device", "Generator", "str", "List[Optional[Tensor]]"})
# c10::Layout and c10::MemoryFormat, which a trace has as numbers.
_LAYOUTS: Final = {"0": "torch.strided"}
_MEMORY_FORMATS: Final = {
    "0": "torch.contiguous_format",
    "1": "torch.preserve_format",
    "2": "torch.channels_last",
    "3": "torch.channels_last_3d",
}
_RECORD: Final = (
    "record it with gpuprof run, or torch.profiler's record_shapes=True of torch 2.1 or later"
)
_WHOLE: Final = frozenset({"int", "SymInt"})


@dataclass(frozen=True)
class PythonCall:
    """A call of an overload."""

    # "torch.ops.aten.add.Tensor"
    operator: str
    # One for each argument: text, and its name where it is given by name.
    arguments: tuple[tuple[str, str], ...]
    # Numbers of the arguments that it writes into and reads, which each call must find unchanged.
    updated: tuple[int, ...]
    # What was not recorded, and is left to the schema's default.
    defaults: tuple[str, ...]


def python_call(call: OpCall) -> PythonCall:
    """`call` for the torch that is installed. Raises `CommandError` where it cannot be called."""
    namespace, _, name = call.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace, None), name, None) if name else None
    if packet is None:
        raise CommandError(
            f"{call.name} is no operator of torch {torch.__version__}; take one that it calls"
        )
    tensors = [_tensors(argument) for argument in call.arguments]
    if any(each == () for each in tensors) and not any(tensors):
        raise CommandError(
            f"{call.name}: none of the tensors in its lists were recorded; record it with gpuprof "
            "run, as torch's profiler leaves lists of more than 30 empty"
        )
    overloads = [getattr(packet, each) for each in packet.overloads()]
    fitting = [each for each in overloads if _fits(each._schema.arguments, call.arguments)]
    if not fitting:
        raise CommandError(
            f"{call.name}: its recorded arguments fit no overload of torch {torch.__version__}; "
            "use the torch that recorded it"
        )
    # All arguments before those of an older torch, which had fewer.
    best = min(fitting, key=lambda each: len(each._schema.arguments))
    packet_name, _, overload = str(best).rpartition(".")
    text = f"torch.ops.{packet_name}"
    # aten::random_ has an overload "from".
    if iskeyword(overload):
        text = f'getattr({text}, "{overload}")'
    else:
        text = f"{text}.{overload}"
    return _as_python(text, call, best._schema.arguments)


def _tensors(argument: Argument) -> tuple[Tensor, ...] | None:
    """The tensors of an argument; None where it is neither a tensor nor a list of them."""
    if isinstance(argument, TensorList):
        return argument.tensors
    return (argument,) if isinstance(argument, Tensor) else None


def _as_python(operator: str, call: OpCall, schema: Sequence[Any]) -> PythonCall:
    by_name: dict[str, Argument] = {
        one.name: argument for one, argument in zip(schema, call.arguments, strict=False)
    }
    makes_tensors = not any(isinstance(each, Tensor | TensorList) for each in call.arguments)
    given: list[tuple[str, str]] = []
    updated: list[int] = []
    defaults: list[str] = []
    left_out = False
    for one in schema[: len(call.arguments)]:
        text = _text(call, one, by_name, makes_tensors=makes_tensors)
        if text is None:
            if _is_unsaid(one, by_name[one.name]):
                defaults.append(one.name)
            left_out = True
            continue
        if one.alias_info is not None and one.alias_info.is_write and one.name != "out":
            updated.append(len(given))
        given.append((text, one.name if one.kwarg_only or left_out else ""))
    return PythonCall(operator, tuple(given), tuple(updated), tuple(defaults))


def _fits(schema: Sequence[Any], recorded: Sequence[Argument]) -> bool:
    if len(recorded) > len(schema):
        return False
    rest = schema[len(recorded) :]
    return all(one.has_default_value() for one in rest) and all(
        map(_fits_one, schema[: len(recorded)], recorded)
    )


def _fits_one(one: Any, argument: Argument) -> bool:
    kind, optional = _kind(one)
    if argument is None:
        # A tensor that is not defined counts as one in a schema.
        return optional or kind == "Tensor" or kind in _NOT_RECORDED
    if isinstance(argument, Tensor):
        return kind == "Tensor"
    if isinstance(argument, TensorList):
        return kind in ("List[Tensor]", "List[Optional[Tensor]]")
    if "Tensor" in kind:
        return False
    return not argument.text or _value(kind, argument.text) is not None


def _kind(one: Any) -> tuple[str, bool]:
    """The schema's type, and whether it may be None."""
    kind = str(one.real_type)
    inner = kind.removeprefix("Optional[")
    return (inner.removesuffix("]"), True) if inner != kind else (kind, False)


def _is_unsaid(one: Any, argument: Argument) -> bool:
    """Whether it may have had another value than its default, and one that matters."""
    kind, optional = _kind(one)
    if argument is None:
        return kind == "str" or (kind in _NOT_RECORDED and not optional)
    return isinstance(argument, Scalar) and not argument.text


def _text(
    call: OpCall, one: Any, by_name: Mapping[str, Argument], *, makes_tensors: bool
) -> str | None:
    """An argument as Python; None where it is left out. Raises `CommandError`."""
    operator, argument = call.name, by_name[one.name]
    kind, optional = _kind(one)
    if isinstance(argument, Tensor):
        return _tensor_text(operator, one.name, argument, by_name)
    if isinstance(argument, TensorList):
        named = _with_dtype(argument, _dtype_of_list(call, one.name))
        return _list_text([_tensor_text(operator, one.name, each, by_name) for each in named])
    if isinstance(argument, Scalar) and argument.text:
        return _value(kind, argument.text)
    if kind == "Device" and makes_tensors:
        return "device"
    if argument is None and (optional or kind == "Tensor"):
        return None if one.has_default_value() else "None"
    if one.has_default_value():
        return None
    if kind in _NOT_RECORDED:
        raise CommandError(f"{operator}: torch's profiler does not record its argument {one.name}")
    raise CommandError(f"{operator}: the value of {one.name} was not recorded; {_RECORD}")


def _dtype_of_list(call: OpCall, name: str) -> DType | None:
    """The type of the tensors in a list whose record has none."""
    stated = dtype_of(call.name, name)
    return call.list_dtype if stated is None else stated


def _with_dtype(tensors: TensorList, dtype: DType | None) -> Iterator[Tensor]:
    for tensor in tensors.tensors:
        yield replace(tensor, dtype=dtype) if tensor.dtype is None else tensor


def _list_text(elements: Sequence[str]) -> str:
    """A list of Python, in which neighbours alike stand once."""
    lines = []
    for text, group in groupby(elements):
        number = len(list(group))
        one = text if number == 1 else f"*({text} for _ in range({number}))"
        lines.append(f"\n            {one},")
    return f"[{''.join(lines)}\n        ]" if lines else "[]"


def _tensor_text(operator: str, name: str, tensor: Tensor, by_name: Mapping[str, Argument]) -> str:
    if not tensor.strided:
        raise CommandError(f"{operator}: {name} is sparse; its shape does not tell its elements")
    if tensor.dtype is None:
        raise CommandError(f"{operator}: the type of {name} was not recorded; {_RECORD}")
    dtype = getattr(torch, tensor.dtype.name, None)
    if dtype is None:
        raise CommandError(
            f"{operator}: {name} is {tensor.dtype.name}, which torch {torch.__version__} has not; "
            "use the torch that recorded it"
        )
    values = values_of(operator, name, by_name)
    if values is None:
        raise CommandError(f"{operator}: the range of {name} was not recorded; {_RECORD}")
    is_integer = not dtype.is_floating_point and not dtype.is_complex
    # A class may also be a probability, and a mask is no index.
    if ("=" in values and values != "positive=True") and (not is_integer or dtype == torch.bool):
        values = ""
    strides = tensor.strides if tensor.strides is not None else _contiguous(tensor.shape)
    parts = (str(tensor.shape), str(strides), f"torch.{tensor.dtype.name}", values)
    return f"tensor({', '.join(part for part in parts if part)})"


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _value(kind: str, text: str) -> str | None:
    """The recorded `text` as Python of the schema's type; None where it is none."""
    if kind == "ScalarType":
        dtype = dtypes.parse(text)
        return None if dtype is None else f"torch.{dtype.name}"
    if kind == "Layout":
        return _LAYOUTS.get(text)
    if kind == "MemoryFormat":
        return _MEMORY_FORMATS.get(text)
    if kind == "str":
        return repr(text)
    value = _literal(text)
    if kind.startswith("List["):
        inner = kind[len("List[") : -1]
        values = value if isinstance(value, list) else [value]
        return repr(values) if all(_is_of(inner, each) for each in values) else None
    return _number(value) if _is_of(kind, value) else None


def _is_of(kind: str, value: Any) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind in _WHOLE:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, float | int) and not isinstance(value, bool)
    return kind == "number" and isinstance(value, bool | int | float | complex)


def _number(value: Any) -> str:
    finite = not isinstance(value, float) or isfinite(value)
    return repr(value) if finite else f'float("{value}")'


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    try:
        return float(text)
    except ValueError:
        return None
