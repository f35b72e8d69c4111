"""Gathers and scatters: the rows that are touched, never the whole table.

Indices are not in a trace, only their number: rows count as distinct up to the size of the table
they come from. Indexing with a list (x[i, j], index_put) records no shape of its indices at all.
"""

import math
import re

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import (
    bytes_for,
    bytes_of,
    copy_cost,
    total,
    vector_flops,
)
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.dtypes import named

_DISTINCT = "indices are not in the trace: each row counted once"
_BY_GRID = "the number of indices is the kernel's number of columns of blocks"
# Bytes that a thread moves, and the type of the indices.
_GATHER = re.compile(r"vectorized_gather_kernel<(\d+), (\w+)>")
_LARGEST_WARP = 64
_INDEX_DTYPES = {"long": "int64", "int": "int32"}
_INDICES_UNKNOWN = "the trace records nothing of the indices"


def _rows(table: Tensor, axis: int, indices: Tensor) -> tuple[int, int] | None:
    """Elements read from the table's distinct rows, and elements of all rows together."""
    rank = len(table.shape)
    if not -max(rank, 1) <= axis < max(rank, 1):
        return None
    rows = table.shape[axis] if rank else 1
    row = math.prod(table.shape) // rows if rows else 0
    return min(indices.elements, rows) * row, indices.elements * row


def _gather_rows(table: Tensor | None, axis: int | None, indices: Tensor | None) -> Cost | None:
    if table is None or axis is None or indices is None:
        return None
    elements = _rows(table, axis, indices)
    if elements is None:
        return None
    distinct, gathered = elements
    return copy_cost(
        total((indices.bytes, bytes_for(distinct, table.dtype))),
        bytes_for(gathered, table.dtype),
        _DISTINCT,
    )


@cost_model("aten::index_select")
def index_select(call: OpCall) -> Cost | None:
    """(self, dim, index)."""
    return _gather_rows(call.tensor(0), call.integer(1), call.tensor(2))


@cost_model("aten::embedding", composite=True)
def embedding(call: OpCall) -> Cost | None:
    """(weight, indices, ...): index_select of the weight's rows."""
    return _gather_rows(call.tensor(0), 0, call.tensor(1))


@cost_model("aten::gather")
def gather(call: OpCall) -> Cost | None:
    """(self, dim, index): one element for each index."""
    source, indices = call.tensor(0), call.tensor(2)
    if source is None or indices is None:
        return None
    read = bytes_for(min(indices.elements, source.elements), source.dtype)
    written = bytes_for(indices.elements, source.dtype)
    return copy_cost(total((indices.bytes, read)), written, _DISTINCT)


@cost_model("aten::index")
def index(call: OpCall) -> Cost | None:
    """(self, indices): neither the indices nor the output are recorded.

    Whole rows are gathered by a kernel with a column of blocks for each index, in which each
    thread moves 16 bytes (pytorch aten/src/ATen/native/cuda/IndexKernelUtils.cu): its grid tells
    their number. Other kernels round theirs up.
    """
    source, gather = call.tensor(0), [_GATHER.search(name) for name in call.kernels]
    if source is None or len(gather) != 1 or gather[0] is None:
        return copy_cost(None, None, _INDICES_UNKNOWN)
    rows = next((size for size in source.shape if size != 1), 1)
    row = bytes_for(source.elements // max(rows, 1), source.dtype)
    if call.grid is None or call.block is None or row is None:
        return copy_cost(None, None, _INDICES_UNKNOWN)
    # Blocks that do not fit a row, up to a warp, are of an index of another axis.
    threads = -(-row // int(gather[0][1]))
    if -(-threads // call.block[0]) != call.grid[1] or threads <= call.block[0] - _LARGEST_WARP:
        return copy_cost(None, None, _INDICES_UNKNOWN)
    indices = call.grid[0] * named(_INDEX_DTYPES.get(gather[0][2], "int64")).bytes_for(1)
    read = min(call.grid[0], rows) * row + indices
    return copy_cost(read, call.grid[0] * row, _BY_GRID, _DISTINCT)


@cost_model("aten::_index_put_impl_", "aten::index_put_", composite=True)
def index_put(call: OpCall) -> Cost | None:
    """(self, indices, values, accumulate): one value for each element written."""
    target, values, accumulate = call.tensor(0), call.tensor(2), call.flag(3)
    if target is None or values is None or accumulate is None:
        return None
    if values.elements == 1:
        # A single value may fill any number of elements.
        return copy_cost(None, None, _INDICES_UNKNOWN)
    touched = bytes_for(min(values.elements, target.elements), target.dtype)
    return Cost(
        flops=vector_flops(target.dtype, values.elements if accumulate else 0),
        bytes_read=total((values.bytes, touched if accumulate else 0)),
        bytes_written=touched,
        assumptions=(_INDICES_UNKNOWN, "one value for each element written"),
    )


def _scatter(call: OpCall, *, adds: bool) -> Cost | None:
    """(self, dim, index, src or value): one element of `self` for each index."""
    target, indices, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if target is None or indices is None:
        return None
    in_place = call.name.endswith("_")
    touched = min(indices.elements, target.elements)
    # Out of place, all of self is read and written; in place, only what an addition reads.
    old = target.elements if not in_place else touched if adds else 0
    values = None if source is None else Tensor(indices.shape, source.dtype)
    return Cost(
        flops=vector_flops(target.dtype, indices.elements if adds else 0),
        bytes_read=total((indices.bytes, bytes_of(values), bytes_for(old, target.dtype))),
        bytes_written=bytes_for(touched if in_place else target.elements, target.dtype),
        assumptions=(_DISTINCT,),
    )


@cost_model("aten::scatter", "aten::scatter_")
def scatter(call: OpCall) -> Cost | None:
    """(self, dim, index, src or value), without a reduction."""
    return None if call.has(4) else _scatter(call, adds=False)


@cost_model(
    "aten::scatter_add", "aten::scatter_add_", "aten::scatter_reduce", "aten::scatter_reduce_"
)
def scatter_add(call: OpCall) -> Cost | None:
    """(self, dim, index, src, ...): an operation for each source element."""
    return _scatter(call, adds=True)


@cost_model("aten::index_add_", "aten::index_copy_")
def index_add(call: OpCall) -> Cost | None:
    """(self, dim, index, source): whole rows of `self`."""
    target, axis = call.tensor(0), call.integer(1)
    indices, source = call.tensor(2), call.tensor(3)
    if target is None or axis is None or indices is None or source is None:
        return None
    elements = _rows(target, axis, indices)
    if elements is None:
        return None
    adds = call.name == "aten::index_add_"
    touched = bytes_for(elements[0], target.dtype)
    return Cost(
        flops=vector_flops(target.dtype, source.elements if adds else 0),
        bytes_read=total((indices.bytes, source.bytes, touched if adds else 0)),
        bytes_written=touched,
        assumptions=(_DISTINCT,),
    )


@cost_model("aten::index_fill_")
def index_fill(call: OpCall) -> Cost | None:
    """(self, dim, index, value)."""
    target, axis, indices = call.tensor(0), call.integer(1), call.tensor(2)
    if target is None or axis is None or indices is None:
        return None
    elements = _rows(target, axis, indices)
    if elements is None:
        return None
    return copy_cost(indices.bytes, bytes_for(elements[0], target.dtype), _DISTINCT)


@cost_model("aten::embedding_dense_backward")
def embedding_dense_backward(call: OpCall) -> Cost | None:
    """(grad_output, indices, num_weights, ...): sums rows into a gradient that zero_ cleared."""
    gradient, indices, rows = call.tensor(0), call.tensor(1), call.integer(2)
    if gradient is None or indices is None or rows is None or not gradient.shape:
        return None
    width = gradient.shape[-1]
    return Cost(
        flops=vector_flops(gradient.dtype, gradient.elements),
        bytes_read=bytes_of(gradient, indices),
        bytes_written=bytes_for(min(indices.elements, rows) * width, gradient.dtype),
        assumptions=(_DISTINCT,),
    )


@cost_model("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(call: OpCall) -> Cost | None:
    """(weight, indices, offsets, ..., per_sample_weights at 6, include_last_offset at 7).

    Sums (or averages, or takes the maximum of) the rows of a bag: an operation a gathered element,
    two with sample weights. Also writes each index's bag and each bag's size.
    """
    weight, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    if weight is None or indices is None or offsets is None or len(weight.shape) != 2:
        return None
    elements = _rows(weight, 0, indices)
    include_last = call.flag(7) if len(call.arguments) > 7 else False
    if elements is None or include_last is None:
        return None
    distinct, gathered = elements
    sample_weights = call.tensor(6)
    bags = offsets.elements - include_last
    return Cost(
        flops=vector_flops(weight.dtype, gathered * (1 if sample_weights is None else 2)),
        bytes_read=total(
            (bytes_of(indices, offsets, sample_weights), bytes_for(distinct, weight.dtype))
        ),
        bytes_written=total(
            (
                bytes_for(bags * weight.shape[1], weight.dtype),
                bytes_for(indices.elements + bags, indices.dtype),
            )
        ),
        assumptions=(_DISTINCT,),
    )


@cost_model("aten::_embedding_bag_dense_backward")
def embedding_bag_dense_backward(call: OpCall) -> Cost | None:
    """(grad, indices, offset2bag, bag_size, maximum_indices, num_weights, ...)."""
    gradient, indices, bags, rows = (
        call.tensor(0),
        call.tensor(1),
        call.tensor(2),
        call.integer(5),
    )
    if gradient is None or indices is None or rows is None or len(gradient.shape) != 2:
        return None
    width = gradient.shape[1]
    return Cost(
        flops=vector_flops(gradient.dtype, indices.elements * width),
        bytes_read=bytes_of(gradient, indices, bags),
        bytes_written=bytes_for(min(indices.elements, rows) * width, gradient.dtype),
        assumptions=(_DISTINCT,),
    )


register_composites(
    "aten::index_put",
    "aten::index_add",
    "aten::index_copy",
    "aten::index_select_backward",
    "aten::gather_backward",
    "aten::embedding_backward",
    "aten::embedding_bag",
    "aten::_embedding_bag_backward",
    "aten::repeat_interleave",
    "aten::take_along_dim",
)
