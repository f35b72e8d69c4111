"""Element types of lists of tensors, from other tensors of the same shapes in a trace.

Kineto records the shapes of a TensorList but no dtype. The tensors in it were nearly always
arguments of other operators too (a gradient of AccumulateGrad, an operand of mul), which do record
it. Where every tensor of a shape that the trace shows has one dtype, a list with that shape has it:
the kernels of cat, foreach and fused optimizers take lists of a single dtype.
"""

from collections.abc import Iterable, Mapping

from gpuprof.roofline.cost_models.call import OpCall, Tensor, TensorList, parse_arguments
from gpuprof.roofline.dtypes import DType

Shape = tuple[int, ...]


def dtypes_by_shape(arguments: Iterable[tuple[str | None, str | None]]) -> dict[Shape, DType]:
    """The dtype of each shape that has only one, from pairs of "Input Dims" and "Input type"."""
    seen: dict[Shape, set[DType | None]] = {}
    for dims, types in arguments:
        for argument in parse_arguments(dims, types) or ():
            if isinstance(argument, Tensor) and argument.shape:
                seen.setdefault(argument.shape, set()).add(argument.dtype)
    unanimous = {shape: next(iter(dtypes)) for shape, dtypes in seen.items() if len(dtypes) == 1}
    return {shape: dtype for shape, dtype in unanimous.items() if dtype is not None}


def list_dtype(call: OpCall, known: Mapping[Shape, DType]) -> DType | None:
    """The one dtype that the known shapes in the call's lists agree on, or None.

    0-dim tensors, such as an optimizer's step counts, say nothing.
    """
    shapes = {
        tensor.shape
        for argument in call.arguments
        if isinstance(argument, TensorList)
        for tensor in argument.tensors
    }
    found = {known[shape] for shape in shapes if shape in known}
    return found.pop() if len(found) == 1 else None
