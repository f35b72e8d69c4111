"""Optimizers: the _foreach_ operators over lists of tensors, and the fused steps.

Other tools do not record a list's dtype; it is then read from the names of the kernels, or else
from other tensors of the same shapes. Without it the bytes are unknown and the operations count at
float32, in which torch's kernels compute every float but float64.

Operations an element of a fused step, a root or division as one. Adam: first moment 3, second
moment 4, denominator 3, update 3; weight decay 2, amsgrad 1. SGD: update 2, momentum 3, nesterov
2, weight decay 2. Adagrad: 6, weight decay 2. Unscaling gradients 1. Source: the algorithms as
torch.optim's documentation writes them (Kingma and Ba 2014, arXiv 1412.6980; Loshchilov and Hutter
2017, 1711.05101; Duchi et al. 2011).
"""

import msgspec

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_for, vector_flops
from gpuprof.roofline.cost_models.elementwise import families
from gpuprof.roofline.cost_models.registry import cost_model
from gpuprof.roofline.dtypes import DType, named
from gpuprof.roofline.kernel_names.element_types import element_type

_FROM_KERNEL = "element type from the kernel's name"
_FROM_SHAPES = "element type from other tensors of these shapes in the trace"
_ASSUMED = "the trace records no dtype for a list of tensors: operations counted at float32"


def _distinct(tensors: tuple[Tensor, ...]) -> int:
    return sum(tensor.distinct_elements for tensor in tensors)


def _list_type(call: OpCall) -> tuple[DType | None, tuple[str, ...]]:
    """The dtype of the first list, None if unknown, and what that rests on."""
    recorded = {tensor.dtype for tensor in call.tensors(0) or ()}
    told = recorded.pop() if len(recorded) == 1 else None
    if told is not None:
        return told, ()
    by_kernel = element_type(call.kernels)
    if by_kernel is not None:
        return by_kernel, (_FROM_KERNEL,)
    return call.list_dtype, (_FROM_SHAPES if call.list_dtype else _ASSUMED,)


def _lists_cost(call: OpCall, operations: int, read: int, written: int) -> Cost:
    """Cost of `operations` on lists of which `read` and `written` elements move."""
    dtype, assumptions = _list_type(call)
    return Cost(
        flops=vector_flops(dtype or named("float32"), operations),
        bytes_read=bytes_for(read, dtype),
        bytes_written=bytes_for(written, dtype),
        assumptions=assumptions,
    )


def _bytes_of(tensors: tuple[Tensor, ...], dtype: DType | None) -> int | None:
    """Bytes of the distinct elements, those of unknown type as `dtype`; None where unknown."""
    sizes = [bytes_for(tensor.distinct_elements, tensor.dtype or dtype) for tensor in tensors]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _elements(call: OpCall) -> int | None:
    """Elements of the parameters, the first list; Kineto leaves long lists empty."""
    parameters = call.tensors(0)
    if parameters is None or call.tensors(1) is None:
        return None
    return sum(tensor.elements for tensor in parameters) if parameters else call.list_elements


def weight_decay(call: OpCall) -> float | None:
    """The weight decay that a fused optimizer was called with; None for other operators."""
    position = {
        "aten::_fused_adam_": 9,
        "aten::_fused_adamw_": 9,
        "aten::_fused_sgd_": 3,
        "aten::_fused_adagrad_": 6,
    }.get(call.name)
    return None if position is None else call.number(position)


def _foreach(call: OpCall, operations: int) -> Cost | None:
    lists = [tensors for position in range(3) if (tensors := call.tensors(position)) is not None]
    # Kineto leaves long lists empty.
    if not lists or not lists[0]:
        return None
    elements = sum(tensor.elements for tensor in lists[0])
    cost = _lists_cost(call, operations * elements, 0, elements)
    dtype, _ = _list_type(call)
    read = _bytes_of(tuple(tensor for tensors in lists for tensor in tensors), dtype)
    return msgspec.structs.replace(cost, bytes_read=read)


# Those of the elementwise operators that torch has over lists.
_FOREACH = frozenset(
    "abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp "
    "expm1 floor frac lerp lgamma log log10 log1p log2 maximum minimum mul neg pow reciprocal "
    "round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc".split()
)


def _register_foreach() -> None:
    for family in families():
        for name in _FOREACH.intersection(family.names):

            @cost_model(f"aten::_foreach_{name}", f"aten::_foreach_{name}_", composite=True)
            def _model(call: OpCall, operations: int = family.operations) -> Cost | None:
                return _foreach(call, operations)


# On a CPU they call the operator on each tensor in turn.
_register_foreach()


@cost_model("aten::_foreach_copy_", composite=True)
def foreach_copy(call: OpCall) -> Cost | None:
    """(self, src): without recorded types only if both have one, as the copy's kernel tells."""
    targets, sources = call.tensors(0), call.tensors(1)
    if not targets or sources is None:
        return None
    cost = _lists_cost(call, 0, 0, sum(tensor.elements for tensor in targets))
    dtype, _ = _list_type(call)
    recorded = all(tensor.dtype is not None for tensor in sources)
    read = _bytes_of(sources, None if recorded else dtype)
    return msgspec.structs.replace(cost, bytes_read=read)


@cost_model("aten::_foreach_zero_", composite=True)
def foreach_zero(call: OpCall) -> Cost | None:
    """(self)."""
    targets = call.tensors(0)
    if not targets:
        return None
    return _lists_cost(call, 0, 0, sum(tensor.elements for tensor in targets))


@cost_model("aten::_foreach_norm", "aten::_foreach_max", composite=True)
def foreach_reduce(call: OpCall) -> Cost | None:
    """(self, ...): one number for each tensor."""
    tensors = call.tensors(0)
    if not tensors:
        return None
    operations = 2 if call.name == "aten::_foreach_norm" else 1
    elements = sum(tensor.elements for tensor in tensors)
    return _lists_cost(call, operations * elements, _distinct(tensors), len(tensors))


@cost_model("aten::_amp_foreach_non_finite_check_and_unscale_")
def unscale(call: OpCall) -> Cost | None:
    """(self, found_inf, inv_scale): a product and a check."""
    return _foreach(call, 2)


@cost_model("aten::_fused_adam_", "aten::_fused_adamw_")
def fused_adam(call: OpCall) -> Cost | None:
    """(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, ...)."""
    elements = _elements(call)
    if elements is None:
        return None
    amsgrad = call.flag(11) is True
    unscales = call.has(13)
    operations = 13 + 2 * (weight_decay(call) != 0) + amsgrad + unscales
    # Parameter and both moments are read and written, the gradient read.
    states = 3 + amsgrad
    return _lists_cost(
        call,
        operations * elements,
        (states + 1) * elements,
        (states + unscales) * elements,
    )


@cost_model("aten::_fused_sgd_")
def fused_sgd(call: OpCall) -> Cost | None:
    """(self, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, ...)."""
    elements = _elements(call)
    if elements is None:
        return None
    has_momentum = call.number(4) != 0
    first = call.flag(9) is True
    unscales = call.has(10)
    operations = 2 + 2 * (weight_decay(call) != 0) + unscales
    if has_momentum:
        operations += 3 * (not first) + 2 * (call.flag(7) is True)
    read = 2 + (has_momentum and not first)
    written = 1 + has_momentum + unscales
    return _lists_cost(call, operations * elements, read * elements, written * elements)


@cost_model("aten::_fused_adagrad_")
def fused_adagrad(call: OpCall) -> Cost | None:
    """(self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, ...)."""
    elements = _elements(call)
    if elements is None:
        return None
    operations = 6 + 2 * (weight_decay(call) != 0)
    return _lists_cost(call, operations * elements, 3 * elements, 2 * elements)
