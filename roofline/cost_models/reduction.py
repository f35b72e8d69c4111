"""Reductions and scans: each input element read once, each result written once.

Operations an input element: sum, mean, product, extremum and scan 1, norm 2 (square, add),
variance 4 (mean 1, subtract, square, add). Sorting moves data and counts no operations.
Source: the definitions of torch.sum, torch.linalg.vector_norm and torch.var, written out.
"""

import math
from dataclasses import dataclass
from typing import Literal

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import UNCOUNTED_COMPARISONS, Cost
from gpuprof.roofline.cost_models.counting import bytes_for, copy_cost, total, vector_flops
from gpuprof.roofline.cost_models.elementwise import result_dtype
from gpuprof.roofline.cost_models.gemm import broadcast_shape
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.dtypes import DType, named


@dataclass(frozen=True)
class _Reduction:
    """`axes` is where the reduced axes stand, in overloads of at least `arguments` arguments.

    `results` are the dtypes written for an output element: same, summed (integers widen to int64),
    bool, or index (int64). A dtype argument, the last of these overloads, overrides them.
    """

    operations: int
    axes: int = 1
    arguments: int = 2
    results: tuple[Literal["same", "summed", "bool", "index"], ...] = ("same",)
    has_dtype: bool = False


# sum(self, dtype) or sum(self, dim, keepdim, dtype); max(self) or max(self, dim, keepdim).
_REDUCTIONS = {
    "aten::sum": _Reduction(1, arguments=4, results=("summed",), has_dtype=True),
    "aten::nansum": _Reduction(1, arguments=4, results=("summed",), has_dtype=True),
    "aten::mean": _Reduction(1, arguments=4, has_dtype=True),
    "aten::prod": _Reduction(1, arguments=4, results=("summed",), has_dtype=True),
    "aten::amax": _Reduction(1),
    "aten::amin": _Reduction(1),
    "aten::aminmax": _Reduction(2, results=("same", "same")),
    "aten::argmax": _Reduction(1, results=("index",)),
    "aten::argmin": _Reduction(1, results=("index",)),
    "aten::any": _Reduction(1, results=("bool",)),
    "aten::all": _Reduction(1, results=("bool",)),
    "aten::count_nonzero": _Reduction(1, results=("index",)),
    "aten::norm": _Reduction(2, axes=2, arguments=4),
    "aten::linalg_vector_norm": _Reduction(2, axes=2, arguments=5, has_dtype=True),
    "aten::var": _Reduction(4, arguments=4),
    "aten::std": _Reduction(4, arguments=4),
    "aten::var_mean": _Reduction(4, arguments=4, results=("same", "same")),
    "aten::std_mean": _Reduction(4, arguments=4, results=("same", "same")),
}


def reduced_elements(call: OpCall, shape: tuple[int, ...], axes: int) -> int | None:
    """Elements left after reducing the axes given at position `axes`; none given reduces all."""
    if not call.has(axes):
        return 1
    chosen = call.integers(axes)
    if chosen is None:
        return 1 if call.text(axes) == "[]" else None
    if not chosen:
        return 1
    rank = len(shape)
    if any(not -rank <= axis < rank for axis in chosen):
        return None
    dropped = {axis % rank for axis in chosen}
    return math.prod(size for axis, size in enumerate(shape) if axis not in dropped)


def _reduce(call: OpCall, rule: _Reduction) -> Cost | None:
    tensor = call.tensor(0)
    if tensor is None:
        return None
    of_axes = len(call.arguments) >= rule.arguments
    outputs = reduced_elements(call, tensor.shape, rule.axes) if of_axes else 1
    override = None
    if rule.has_dtype:
        override = call.dtype(rule.arguments - 1 if of_axes else 1)
    written = total(
        bytes_for(outputs, override or _result(kind, tensor.dtype)) for kind in rule.results
    )
    return Cost(
        flops=vector_flops(tensor.dtype, rule.operations * tensor.elements),
        bytes_read=tensor.bytes,
        bytes_written=written,
    )


def _result(kind: str, dtype: DType | None) -> DType | None:
    if kind == "index":
        return named("int64")
    if kind == "bool":
        return named("bool")
    if kind == "summed" and dtype is not None and dtype.kind in ("bool", "integer"):
        return named("int64")
    return dtype


def _register_reductions() -> None:
    for name, rule in _REDUCTIONS.items():
        # On a CPU mean is a sum and a division.
        @cost_model(name, composite=name == "aten::mean")
        def _model(call: OpCall, rule: _Reduction = rule) -> Cost | None:
            return _reduce(call, rule)


_register_reductions()


@cost_model("aten::max", "aten::min")
def extremum(call: OpCall) -> Cost | None:
    """max(self), max(self, dim, keepdim) -> values, indices, or max(self, other)."""
    left, right = call.tensor(0), call.tensor(1)
    if left is None:
        return None
    if right is None:
        both: tuple[Literal["same", "index"], ...] = ("same", "index")
        with_axes = len(call.arguments) > 1
        return _reduce(call, _Reduction(1, results=both if with_axes else ("same",)))
    shape = broadcast_shape(left.shape, right.shape)
    dtype = result_dtype((left, right))
    if shape is None:
        return None
    return Cost(
        flops=vector_flops(dtype, math.prod(shape)),
        bytes_read=total((left.bytes, right.bytes)),
        bytes_written=bytes_for(math.prod(shape), dtype),
    )


@cost_model("aten::cumsum", "aten::cumprod", "aten::cumsum_", "aten::cumprod_")
def scan(call: OpCall) -> Cost | None:
    """(self, dim, dtype): integers widen to int64 unless in place."""
    tensor = call.tensor(0)
    if tensor is None:
        return None
    output = tensor.dtype
    if not call.name.endswith("_"):
        output = call.dtype(2) or _result("summed", tensor.dtype)
    return Cost(
        flops=vector_flops(tensor.dtype, tensor.elements),
        bytes_read=tensor.bytes,
        bytes_written=bytes_for(tensor.elements, output),
    )


def _with_indices(tensor: Tensor, outputs: int | None) -> Cost:
    written = total((bytes_for(outputs, tensor.dtype), bytes_for(outputs, named("int64"))))
    return copy_cost(tensor.bytes, written, UNCOUNTED_COMPARISONS)


@cost_model("aten::sort")
def sort(call: OpCall) -> Cost | None:
    """(self, ...) -> values, indices."""
    tensor = call.tensor(0)
    return None if tensor is None else _with_indices(tensor, tensor.elements)


@cost_model("aten::topk")
def topk(call: OpCall) -> Cost | None:
    """(self, k, dim, largest, sorted) -> values, indices."""
    tensor, kept = call.tensor(0), call.integer(1)
    if tensor is None or kept is None:
        return None
    rows = reduced_elements(call, tensor.shape, 2)
    return _with_indices(tensor, None if rows is None else rows * kept)


register_composites("aten::logsumexp", "aten::argsort", "aten::msort", "aten::special_logsumexp")
