"""Triton kernels that torch.compile's inductor generates, from the arguments that the trace shows.

A call carries its kernel's name, which lists the operators that were fused, and the kernel's
arguments: the tensors that it updates in place, those that it only reads, those that it only
writes, then the sizes of its loops (pytorch torch/_inductor/codegen/common.py,
KernelArgs.python_argdefs). The arguments' names say which are which; a trace does not hold them,
the kernel's source does.
"""

import math
import re
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, total, vector_flops
from gpuprof.roofline.cost_models.elementwise import families
from gpuprof.roofline.cost_models.flex_attention import NAME as ATTENTION
from gpuprof.roofline.cost_models.flex_attention import flex_attention
from gpuprof.roofline.cost_models.gemm import MATRIX_AXES, broadcast_shape, product
from gpuprof.roofline.cost_models.registry import cost_model

# The numbered end tells kernels of one graph apart.
_NAME: Final = re.compile(r"triton_(?P<kind>\w{3})_fused_(?P<operators>\w*?)_?\d+$")
_POINTER: Final = re.compile(r"(in_out|in|out)_ptr\d+$")
_PRODUCT: Final = re.compile(r"_(?:mm|addmm|bmm|baddbmm|_scaled_mm|_int_mm)(?=_)")
# Where the template of a scaled product has the scales of B (torch/_inductor/kernel/mm.py).
_WEIGHT_SCALES: Final = 3
# Operators that pick elements out of a larger tensor.
_PICKING: Final = frozenset({"_unsafe_index", "embedding", "gather", "index", "index_select"})
# Operators that pass a part of a tensor on, of which the trace shows the whole.
_SLICING: Final = frozenset(
    {"as_strided", "diagonal", "select", "slice", "split", "split_with_sizes", "unbind", "unfold"}
)
_CREATING: Final = frozenset(
    {"arange", "fill", "full", "full_like", "iota", "ones", "ones_like", "zeros", "zeros_like"}
)
_ONCE: Final = "operations by the operators in the kernel's name, each once a loop element"
_LAST: Final = "the trace does not tell the outputs: the last tensor counts as the one written"
_FIRST: Final = (
    "the trace does not tell the outputs: the first tensor counts as the one read and written"
)


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operations: int
    names: tuple[str, ...]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: tuple[_Group, ...]


@cache
def _operations() -> dict[str, int]:
    """Operations a loop element of each operator that may stand in a kernel's name."""
    text = files("gpuprof.roofline.cost_models").joinpath("inductor.toml").read_bytes()
    groups = msgspec.toml.decode(text, type=_Table).group
    table = {name: family.operations for family in families() for name in family.names}
    return table | {name: group.operations for group in groups for name in group.names}


def operators_of(fused: str) -> tuple[str, ...] | None:
    """The operators that `fused`, names joined by underscores, consists of; None where unclear.

    The longest name goes first: add_native_layer_norm holds no norm beside native_layer_norm.
    """
    words = fused.split("_")
    found: list[str] = []
    start = 0
    while start < len(words):
        for end in range(len(words), start, -1):
            name = "_".join(words[start:end])
            if name in _operations():
                found.append(name)
                start = end
                break
        else:
            return None
    return tuple(found)


def _loop_sizes(call: OpCall, tensors: tuple[Tensor, ...]) -> tuple[int, ...] | None:
    """The sizes of the loops, outer ones first; None where no tensor has as many elements.

    Sizes of dynamic shapes stand before them.
    """
    sizes = [
        size
        for position in range(len(call.arguments))
        if (size := call.integer(position)) is not None
    ]
    known = {tensor.elements for tensor in tensors}
    for first in range(len(sizes)):
        if math.prod(sizes[first:]) in known:
            return tuple(sizes[first:])
    return None


@cost_model("triton_poi_fused_*", "triton_red_fused_*", "triton_per_fused_*")
def fused(call: OpCall) -> Cost | None:
    """A pointwise or reduction kernel: each tensor once, one that it updates in place twice.

    Of a tensor that an index picks from, as many elements as the loop has. Of any, no more than
    its loads or stores in the source times the iterations of the loop; without the source, what a
    slice or an unknown operator leaves of a tensor larger than the loop is unknown.
    """
    match = _NAME.match(call.name)
    tensors = call.tensors_after(-1)
    if match is None or not tensors:
        return None
    loops = _loop_sizes(call, tensors)
    operators = operators_of(match["operators"])
    iterations = None if loops is None else math.prod(loops)
    flops = None
    if operators is not None and iterations is not None:
        count = sum(_operations()[name] for name in operators) * iterations
        flops = vector_flops(tensors[0].dtype, count)
    pointers = _pointers(call, tensors)
    sizes = [
        _touched(tensor, iterations, operators, accesses)
        for tensor, (_, accesses) in zip(tensors, pointers, strict=True)
    ]
    kinds = [kind for kind, _ in pointers]
    if None not in kinds:
        read = total(size for kind, size in zip(kinds, sizes, strict=True) if kind != "out")
        written = total(size for kind, size in zip(kinds, sizes, strict=True) if kind != "in")
        return Cost(flops=flops, bytes_read=read, bytes_written=written, assumptions=(_ONCE,))
    if len(tensors) == 1 and operators is not None and _CREATING.issuperset(operators):
        return Cost(flops=flops, bytes_read=0, bytes_written=sizes[0], assumptions=(_ONCE,))
    if _may_be_output(tensors[-1], tensors, match["kind"], loops):
        read, written, which = total(sizes[:-1]), sizes[-1], _LAST
    else:
        read, written, which = total(sizes), sizes[0], _FIRST
    return Cost(flops=flops, bytes_read=read, bytes_written=written, assumptions=(_ONCE, which))


def _pointers(
    call: OpCall, tensors: tuple[Tensor, ...]
) -> list[tuple[str, int | None]] | list[tuple[None, None]]:
    """What the source says of each tensor: in, out or in_out, and how many accesses it has.

    The pointers stand before all sizes. None where they are not known or of another kind:
    workspaces, templates.
    """
    kinds = [match[1] for name in call.argument_names if (match := _POINTER.match(name))]
    if len(kinds) != len(tensors):
        return [(None, None) for _ in tensors]
    counts = call.argument_accesses[: len(kinds)]
    # A pointer that nothing accesses by its name is accessed some other way.
    known = len(counts) == len(kinds) and 0 not in counts
    return [(kind, counts[at] if known else None) for at, kind in enumerate(kinds)]


def _touched(
    tensor: Tensor,
    iterations: int | None,
    operators: tuple[str, ...] | None,
    accesses: int | None,
) -> int | None:
    """Bytes of `tensor` that the loop reaches; None where nothing tells how much that is."""
    if iterations is not None and accesses is not None:
        return _at_most(tensor, accesses * iterations)
    if operators is None or not _SLICING.isdisjoint(operators):
        larger = iterations is None or tensor.distinct_elements > iterations
        return None if larger else tensor.bytes
    return tensor.bytes if _PICKING.isdisjoint(operators) else _at_most(tensor, iterations)


def _at_most(tensor: Tensor, elements: int | None) -> int | None:
    if elements is None or tensor.distinct_elements <= elements:
        return tensor.bytes
    return bytes_for(elements, tensor.dtype)


def _may_be_output(
    last: Tensor, tensors: tuple[Tensor, ...], kind: str, loops: tuple[int, ...] | None
) -> bool:
    """Whether the last tensor has the shape of an output that is not updated in place.

    A loop writes an element in each of its iterations, a reduction also one a row. The buffer of a
    matrix product (rank 2) behind a tensor of the same size and higher rank is read: an output of
    the loop would have that rank itself.
    """
    first = tensors[0]
    if len(tensors) == 1:
        return False
    if loops is None:
        return last.elements >= first.elements
    sizes = {math.prod(loops)}
    if kind in ("red", "per"):
        sizes.add(math.prod(loops[:-1]))
    same_size = first.elements == last.elements
    return last.elements in sizes and not (same_size and len(last.shape) < len(first.shape))


@cost_model("triton_tem_fused_*")
def template(call: OpCall) -> Cost | None:
    """A GEMM template (max-autotune): A, B, what its epilogue reads, the output. Or attention."""
    if ATTENTION in call.name:
        return flex_attention(call)
    if not _PRODUCT.search(call.name):
        return None
    left, right = call.tensor(0), call.tensor(1)
    output = call.tensors_after(1)[-1:]
    if left is None or right is None or not output or len(left.shape) != len(right.shape):
        return None
    batch = left.shape[:-2]
    if len(left.shape) not in (2, 3) or batch != right.shape[:-2]:
        return None
    shape = (*left.shape[:-1], right.shape[-1])
    if left.shape[-1] != right.shape[-2] or math.prod(shape) != output[0].elements:
        return None
    cost = product(call, left, right, shape, left.shape[-1])
    more = call.tensors_after(1)[:-1]
    if second := _second_product(more, shape):
        cost = _sum(cost, product(call, *second, shape, second[0].shape[-1]))
        more = more[2:]
    scales = call.tensor(_WEIGHT_SCALES) if "_scaled_mm_" in call.name else None
    return msgspec.structs.replace(
        cost,
        bytes_read=total((cost.bytes_read, bytes_of(*more))),
        bytes_written=output[0].bytes,
        assumptions=("operations of a fused epilogue are not counted",),
        weight_bytes=total((cost.weight_bytes, bytes_of(scales))),
    )


def _second_product(
    more: tuple[Tensor, ...], shape: tuple[int, ...]
) -> tuple[Tensor, Tensor] | None:
    """C and D of A @ B + C @ D (torch/_inductor/kernel/mm_plus_mm.py); None for an epilogue's.

    An epilogue reads what broadcasts to the output. Where C and D do so too, nothing tells.
    """
    if len(more) < 2 or {len(tensor.shape) for tensor in more[:2]} != {MATRIX_AXES}:
        return None
    left, right = more[:2]
    if left.shape[1] != right.shape[0] or (left.shape[0], right.shape[1]) != shape:
        return None
    if all(broadcast_shape(tensor.shape, shape) == shape for tensor in (left, right)):
        return None
    return left, right


def _sum(first: Cost, second: Cost) -> Cost:
    """Of two products into one output."""
    known = first.flops is not None and second.flops is not None
    return msgspec.structs.replace(
        first,
        flops=(*(first.flops or ()), *(second.flops or ())) if known else None,
        bytes_read=total((first.bytes_read, second.bytes_read)),
        weight_bytes=total((first.weight_bytes, second.weight_bytes)),
        product=None,
    )
