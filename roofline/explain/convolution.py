"""Which implementation of a convolution ran, and what kept a depthwise one from cuDNN.

The conditions are in `convolution.toml`.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.explanation_figures import Backend, Condition, Dispatch

OPERATOR: Final = "aten::convolution"
_SOURCE: Final = "pytorch aten/src/ATen/native/Convolution.cpp"
CHANGE_OF_LAYOUT: Final = "change of layout"
_CONVERTED: Final = (
    "kernels of its own change the layout of the operands around it: with "
    "model.to(memory_format=torch.channels_last) and channels_last inputs they are not needed"
)
_CHANNELS_LAST: Final = (
    "channels_last operands go to cuDNN whatever these conditions: x.to(memory_format="
    "torch.channels_last)"
)
# Positions in the operator's schema.
_INPUT, _WEIGHT, _STRIDE, _DILATION = 0, 1, 3, 5


class _BackendRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    operators: tuple[str, ...]
    depthwise: bool = False


class _ConditionRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    check: str
    text: str
    remedy: str
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    backend: tuple[_BackendRow, ...]
    condition: tuple[_ConditionRow, ...]


def convolution_dispatch(
    call: OpCall | None, operators: Sequence[str], helpers: Sequence[str]
) -> Dispatch | None:
    """What ran of a convolution, which called `operators`; None where that is open.

    `call` is that of aten::convolution itself. `helpers` are the operations of its kernels by
    `gpuprof.roofline.kernel_names`.
    """
    table = _table()
    ran = next((row for row in table.backend if set(row.operators) & set(operators)), None)
    if ran is None:
        return None
    others: tuple[Backend, ...] = ()
    notes = (_CONVERTED,) if CHANGE_OF_LAYOUT in helpers else ()
    if ran.depthwise:
        others, notes = (_depthwise(call),), (*notes, _CHANNELS_LAST)
    return Dispatch(operator=OPERATOR, ran=ran.name, others=others, notes=notes, source=_SOURCE)


def _depthwise(call: OpCall | None) -> Backend:
    violated, unknown = [], []
    inputs, weight = (None, None) if call is None else (call.tensor(_INPUT), call.tensor(_WEIGHT))
    for row in _table().condition:
        holds, recorded = (
            (None, "")
            if call is None or inputs is None or weight is None
            else _CHECKS[row.check](call, inputs, weight)
        )
        if holds is None:
            unknown.append(row.text)
        elif not holds:
            violated.append(Condition(row.text, recorded, row.remedy, row.source))
    return Backend(name="cuDNN (depthwise)", violated=tuple(violated), unknown=tuple(unknown))


def _half(call: OpCall, inputs: Tensor, weight: Tensor) -> tuple[bool | None, str]:
    types = [inputs.dtype, weight.dtype]
    names = [each.name for each in types if each is not None]
    return (None if None in types else set(names) == {"float16"}), ", ".join(names)


def _not_dilated(call: OpCall, inputs: Tensor, weight: Tensor) -> tuple[bool | None, str]:
    dilation = call.integers(_DILATION)
    return (None if dilation is None else set(dilation) <= {1}), str(list(dilation or ()))


def _square_stride(call: OpCall, inputs: Tensor, weight: Tensor) -> tuple[bool | None, str]:
    stride = call.integers(_STRIDE)
    return (None if stride is None else len(set(stride)) == 1), str(list(stride or ()))


def _channels_32(call: OpCall, inputs: Tensor, weight: Tensor) -> tuple[bool | None, str]:
    if len(inputs.shape) < 2:
        return None, ""
    return inputs.shape[1] >= 32, str(inputs.shape[1])


_CHECKS: Final[dict[str, Callable[[OpCall, Tensor, Tensor], tuple[bool | None, str]]]] = {
    "half": _half,
    "not_dilated": _not_dilated,
    "square_stride": _square_stride,
    "channels_32": _channels_32,
}


@cache
def _table() -> _Table:
    text = files("gpuprof.roofline.explain").joinpath("convolution.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table)
