"""Elementwise operators, from the table in elementwise.toml.

Each operand's distinct elements are read once (a broadcast or expanded axis counts once), each
output element is written once; an in-place operator reads and writes its first operand. Kineto
does not record the output: its shape is the operands' broadcast, its dtype follows torch's
promotion rules.
"""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import UNCOUNTED_RANDOM, Cost
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, total, vector_flops
from gpuprof.roofline.cost_models.gemm import broadcast_shape
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.dtypes import DType, named, promote


class ElementwiseFamily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operators of the table that cost alike."""

    operands: tuple[int, ...]
    operations: int
    result: Literal["promoted", "float", "bool", "first"]
    names: tuple[str, ...]
    selects: int | None = None


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    family: tuple[ElementwiseFamily, ...]


def result_dtype(tensors: Iterable[Tensor], scalars: Iterable[str] = ()) -> DType | None:
    """torch's promotion of tensors and numbers; None where a dtype is unknown.

    Tensors with axes promote among themselves; 0-dim ones and numbers only count where they are of
    a higher kind. A floating number with integer tensors gives the default dtype, float32; a 0-dim
    float64 tensor counts as such a number, since that is how a trace shows one.
    """
    dtype: DType | None = None
    dimensionless: list[DType] = []
    for tensor in tensors:
        if tensor.dtype is None:
            return None
        if not tensor.shape:
            dimensionless.append(tensor.dtype)
        else:
            dtype = tensor.dtype if dtype is None else promote(dtype, tensor.dtype)
            if dtype is None:
                return None
    if dtype is None:
        for other in dimensionless:
            dtype = other if dtype is None else promote(dtype, other)
        dimensionless = []
    for text in scalars:
        dimensionless += _number_dtype(text)
    ranks = ("bool", "integer", "float", "complex")
    for other in dimensionless:
        if dtype is not None and ranks.index(other.kind) > ranks.index(dtype.kind):
            dtype = named("float32") if other.name == "float64" else other
    return dtype


def _number_dtype(text: str) -> list[DType]:
    if text in ("", "True", "False"):
        return []
    return [named("int64" if text.lstrip("-").isdigit() else "float64")]


def elementwise(call: OpCall, family: ElementwiseFamily) -> Cost | None:
    """The cost of `call`, an operator of `family`."""
    operands = [call.tensor(position) for position in family.operands]
    tensors = [tensor for tensor in operands if tensor is not None]
    shape = broadcast_shape(*(tensor.shape for tensor in tensors))
    if not tensors or shape is None:
        return None
    promoting = [position for position in family.operands if position != family.selects]
    inputs = result_dtype(
        (tensor for position in promoting if (tensor := call.tensor(position)) is not None),
        (text for position in promoting if (text := call.text(position)) is not None),
    )
    output: DType | None
    first = operands[0]
    beyond = call.tensors_after(max(family.operands))
    if call.name.endswith("_") and not call.name.endswith("__") and first is not None:
        shape, output = first.shape, first.dtype
    elif beyond:
        # The out= form names its output as the last tensor.
        output = beyond[-1].dtype
    elif family.result == "first":
        output = None if first is None else first.dtype
    elif family.result == "bool":
        output = named("bool")
    else:
        output = inputs
        if family.result == "float" and inputs is not None and inputs.kind in ("bool", "integer"):
            output = named("float32")
    outputs = Tensor(shape, output).elements
    computed = output if family.result == "float" else inputs
    return Cost(
        flops=vector_flops(computed, family.operations * outputs),
        bytes_read=bytes_of(*tensors),
        bytes_written=bytes_for(outputs, output),
    )


@cache
def families() -> tuple[ElementwiseFamily, ...]:
    """The table of elementwise operators."""
    text = files("gpuprof.roofline.cost_models").joinpath("elementwise.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).family


def _register_table() -> None:
    for family in families():
        names = [f"aten::{name}" for name in family.names]

        @cost_model(*names, *(name + "_" for name in names))
        def _model(call: OpCall, family: ElementwiseFamily = family) -> Cost | None:
            return elementwise(call, family)


_register_table()


@cost_model("aten::native_dropout", "aten::_fused_dropout")
def native_dropout(call: OpCall) -> Cost | None:
    """(input, p, ...) -> output and a mask of one byte an element; 2 operations each."""
    inputs = call.tensor(0)
    if inputs is None:
        return None
    return Cost(
        flops=vector_flops(inputs.dtype, 2 * inputs.elements),
        bytes_read=inputs.bytes,
        bytes_written=total((bytes_for(inputs.elements, inputs.dtype), inputs.elements)),
        assumptions=(UNCOUNTED_RANDOM,),
    )


@cost_model("aten::glu")
def glu(call: OpCall) -> Cost | None:
    """The first half of an axis times the sigmoid of the second: 5 operations an output."""
    inputs = call.tensor(0)
    if inputs is None:
        return None
    outputs = inputs.elements // 2
    return Cost(
        flops=vector_flops(inputs.dtype, 5 * outputs),
        bytes_read=inputs.bytes,
        bytes_written=bytes_for(outputs, inputs.dtype),
    )


@cost_model("aten::glu_backward")
def glu_backward(call: OpCall) -> Cost | None:
    """(grad_output, self, dim): both halves' gradients, 10 operations a gradient element."""
    gradient, inputs = call.tensor(0), call.tensor(1)
    if gradient is None or inputs is None:
        return None
    return Cost(
        flops=vector_flops(inputs.dtype, 10 * gradient.elements),
        bytes_read=bytes_of(gradient, inputs),
        bytes_written=bytes_for(inputs.elements, inputs.dtype),
    )


# With a model in the table, for old versions whose relu has a kernel of its own.
register_composites("aten::relu", "aten::relu_")
register_composites(
    "aten::dropout",
    "aten::dropout_",
    "aten::feature_dropout",
    "aten::prelu",
    "aten::log_sigmoid",
)
