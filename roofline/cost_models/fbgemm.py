"""FBGEMM's operators on sparse features: embedding lookups, permutations, bounds checks, 8 bits.

A lookup sums the rows of each bag, an operation a gathered element, two with sample weights. A
permutation moves its data; how many values a permutation of bags writes is in the trace only where
the caller gave their sum. Rowwise 8-bit formats keep two floats behind the values of each row, the
row itself padded to a multiple of 4. Operations an element: a row's minimum and maximum 2, the
scale 1, the bias 1; a mere conversion is none, as for aten::copy_.

Source: pytorch/FBGEMM, fbgemm_gpu: src/sparse_ops and src/quantize_ops for schemas and shapes,
codegen/training/forward for the lookup. Operators of the namespace fb are the same under their
older names.
"""

import math
import re
from typing import Final

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import (
    bytes_for,
    bytes_of,
    copy_cost,
    total,
    vector_flops,
)
from gpuprof.roofline.cost_models.registry import cost_model
from gpuprof.roofline.dtypes import DType, named, parse

_SUM_UNKNOWN: Final = "the number of permuted values is not in the trace"
_DISTINCT: Final = "indices are not in the trace: each row counted once"
_IN_BOUNDS: Final = "all indices are in bounds: none is corrected"
_LISTS_UNKNOWN: Final = "the lists of offsets, small beside the embeddings, are not in the trace"
# fbgemm_gpu's PoolingMode: SUM, MEAN, NONE.
_POOLED: Final = (0, 1)
# The element types of weights, cache and output lead the forward kernel's template arguments.
_OUTPUT: Final = re.compile(r"embedding_codegen_forward_\w*kernel<[^,<]+, [^,<]+, ([^,<>]+),")
_QUANTIZED_ALIGNMENT: Final = 4
_ROW_PARAMETERS_BYTES: Final = 8
# fbgemm's SparseType, as output_dtype names it.
_SPARSE_TYPES: Final = {0: "float32", 1: "float16", 5: "bfloat16"}


def _output_dtype(call: OpCall) -> DType | None:
    found = {match[1] for name in call.kernels if (match := _OUTPUT.search(name))}
    return parse(found.pop()) if len(found) == 1 else None


@cost_model("fbgemm::split_embedding_codegen_lookup_*_function")
def embedding_lookup(call: OpCall) -> Cost | None:
    """(host, dev, uvm and cache weights, ..., D_offsets at 6, total_D, max_D, ..., indices at 11,
    offsets, pooling_mode, indice_weights).

    Tables of several widths leave open how many elements the indices gather.
    """
    offsets_of_tables, total_width, width = call.tensor(6), call.integer(7), call.integer(8)
    indices, offsets, pooling = call.tensor(11), call.tensor(12), call.integer(13)
    tables = [tensor for position in range(3) if (tensor := call.tensor(position)) is not None]
    if offsets_of_tables is None or indices is None or offsets is None or not width:
        return None
    features = offsets_of_tables.elements - 1
    weights = next((tensor for tensor in tables if tensor.elements), None)
    if weights is None or features < 1 or width * features != total_width or pooling is None:
        return None
    gathered = indices.elements * width
    stored = sum(tensor.elements for tensor in tables)
    sample_weights = call.tensor(14)
    if pooling in _POOLED:
        operations = gathered * (1 if sample_weights is None else 2)
        written = (offsets.elements - 1) * width
    else:
        operations, written = 0, gathered
    return Cost(
        # Accumulated in float32, whatever the weights are stored in.
        flops=vector_flops(named("float32"), operations),
        bytes_read=total(
            (bytes_of(indices, offsets, sample_weights),
             bytes_for(min(gathered, stored), weights.dtype))
        ),
        bytes_written=bytes_for(written, _output_dtype(call)),
        assumptions=(_DISTINCT,),
    )  # fmt: skip


@cost_model("fbgemm::permute_2D_sparse_data", "fbgemm::permute_1D_sparse_data")
def permute_sparse_data(call: OpCall) -> Cost | None:
    """(permute, lengths [features, batch], indices, weights, permuted_lengths_sum)."""
    permutation, lengths, values = call.tensor(0), call.tensor(1), call.tensor(2)
    if permutation is None or lengths is None or values is None or not lengths.shape:
        return None
    permuted = call.integer(4)
    if permuted is None:
        return copy_cost(None, None, _SUM_UNKNOWN)
    batch = math.prod(lengths.shape[1:])
    moved = [tensor for tensor in (values, call.tensor(3)) if tensor is not None]
    features = permutation.elements
    read = (
        permutation.bytes,
        bytes_for(min(features, lengths.shape[0]) * batch, lengths.dtype),
        *(bytes_for(min(permuted, tensor.elements), tensor.dtype) for tensor in moved),
    )
    written = (
        bytes_for(features * batch, lengths.dtype),
        *(bytes_for(permuted, tensor.dtype) for tensor in moved),
    )
    return copy_cost(total(read), total(written))


@cost_model("fbgemm::permute_sparse_features", "fb::permute_sparse_features")
def permute_sparse_features(call: OpCall) -> Cost:
    """(permute, lengths, indices, weights): as many values as the permuted lengths add up to."""
    return copy_cost(None, None, _SUM_UNKNOWN)


@cost_model(
    "fbgemm::permute_pooled_embs", "fb::permute_pooled_embs",
    "fbgemm::permute_pooled_embs_auto_grad", "fb::permute_pooled_embs_auto_grad",
    composite=True,
)  # fmt: skip
def permute_pooled_embeddings(call: OpCall) -> Cost | None:
    """(pooled_embs, offset_dim_list, permute_list, inv_offset_dim_list, inv_permute_list).

    The columns of each feature move as a block; there are as many after as before. The last list
    is for the backward pass.
    """
    pooled = call.tensor(0)
    if pooled is None:
        return None
    read = bytes_of(pooled, call.tensor(1), call.tensor(2), call.tensor(3))
    return copy_cost(read, bytes_for(pooled.elements, pooled.dtype))


@cost_model("torch::autograd::CppNode<*PermutePooledEmbsFunction*", composite=True)
def permute_pooled_embeddings_backward(call: OpCall) -> Cost | None:
    """(gradient): the inverse permutation."""
    gradient = call.tensor(0)
    if gradient is None:
        return None
    written = bytes_for(gradient.elements, gradient.dtype)
    return copy_cost(gradient.bytes, written, _LISTS_UNKNOWN)


@cost_model("fbgemm::recat_embedding_grad_output_mixed_D_batch")
def recat_gradient(call: OpCall) -> Cost | None:
    """(grad_output, dim_sum_per_rank, cumsum_dim_sum_per_rank): columns grouped by rank."""
    gradient = call.tensor(0)
    if gradient is None:
        return None
    read = bytes_of(gradient, call.tensor(1), call.tensor(2))
    return copy_cost(read, bytes_for(gradient.elements, gradient.dtype))


@cost_model("fbgemm::bounds_check_indices", "fb::bounds_check_indices")
def bounds_check(call: OpCall) -> Cost | None:
    """(rows_per_table, indices, offsets, ...): each index compared with 0 and its table's rows."""
    rows, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    if rows is None or indices is None or offsets is None:
        return None
    return Cost(
        flops=vector_flops(indices.dtype, 2 * indices.elements),
        bytes_read=bytes_of(rows, indices, offsets),
        bytes_written=0,
        assumptions=(_IN_BOUNDS,),
    )


@cost_model(
    "fbgemm::asynchronous_complete_cumsum", "fb::asynchronous_complete_cumsum",
    "fbgemm::asynchronous_exclusive_cumsum", "fb::asynchronous_exclusive_cumsum",
    "fbgemm::asynchronous_inclusive_cumsum", "fb::asynchronous_inclusive_cumsum",
)  # fmt: skip
def cumulative_sum(call: OpCall) -> Cost | None:
    """(t_in): the complete one writes one element more a row, the sum of all."""
    lengths = call.tensor(0)
    if lengths is None or len(lengths.shape) not in (1, 2):
        return None
    more = math.prod(lengths.shape[:-1]) if "complete" in call.name else 0
    return Cost(
        flops=vector_flops(lengths.dtype, lengths.elements),
        bytes_read=lengths.bytes,
        bytes_written=bytes_for(lengths.elements + more, lengths.dtype),
    )


def _quantize_rows(inputs: Tensor | None, operations: int) -> Cost | None:
    if inputs is None or not inputs.shape:
        return None
    rows, columns = math.prod(inputs.shape[:-1]), inputs.shape[-1]
    aligned = -(-columns // _QUANTIZED_ALIGNMENT) * _QUANTIZED_ALIGNMENT
    return Cost(
        flops=vector_flops(inputs.dtype, operations * inputs.elements),
        bytes_read=inputs.bytes,
        bytes_written=rows * (aligned + _ROW_PARAMETERS_BYTES),
    )


def _restore_rows(stored: Tensor | None, operations: int, output: DType | None) -> Cost | None:
    if stored is None or not stored.shape or stored.shape[-1] < _ROW_PARAMETERS_BYTES:
        return None
    rows, columns = math.prod(stored.shape[:-1]), stored.shape[-1] - _ROW_PARAMETERS_BYTES
    return Cost(
        flops=vector_flops(named("float32"), operations * rows * columns),
        bytes_read=stored.bytes,
        bytes_written=bytes_for(rows * columns, output),
    )


@cost_model("fbgemm::FloatToFP8RowwiseQuantized")
def float_to_fp8(call: OpCall) -> Cost | None:
    """(t, forward): each row divided by a scale of its minimum and maximum."""
    return _quantize_rows(call.tensor(0), operations=3)


@cost_model(
    "fbgemm::FloatToFused8BitRowwiseQuantized", "fbgemm::HalfToFused8BitRowwiseQuantized",
    "fbgemm::FloatOrHalfToFused8BitRowwiseQuantized",
)  # fmt: skip
def float_to_8_bit(call: OpCall) -> Cost | None:
    """(t): each row less its minimum, over its range."""
    return _quantize_rows(call.tensor(0), operations=4)


def _sparse_type(call: OpCall, position: int) -> DType | None:
    """The output_dtype at `position`; older schemas end before it and give float32."""
    if position >= len(call.arguments):
        return named("float32")
    name = _SPARSE_TYPES.get(-1 if (number := call.integer(position)) is None else number)
    return None if name is None else named(name)


@cost_model("fbgemm::FP8RowwiseQuantizedToFloat")
def fp8_to_float(call: OpCall) -> Cost | None:
    """(input, forward, output_dtype)."""
    return _restore_rows(call.tensor(0), 1, _sparse_type(call, 2))


@cost_model("fbgemm::Fused8BitRowwiseQuantizedToFloat")
def float_from_8_bit(call: OpCall) -> Cost | None:
    """(input)."""
    return _restore_rows(call.tensor(0), 2, named("float32"))


@cost_model("fbgemm::FloatToHFP8Quantized")
def float_to_hfp8(call: OpCall) -> Cost | None:
    """(input, ebits, exponent_bias, max_pos): one byte an element."""
    inputs = call.tensor(0)
    return None if inputs is None else copy_cost(inputs.bytes, inputs.elements)


@cost_model("fbgemm::HFP8QuantizedToFloat")
def hfp8_to_float(call: OpCall) -> Cost | None:
    """(input, ebits, exponent_bias): float32."""
    stored = call.tensor(0)
    if stored is None:
        return None
    return copy_cost(stored.bytes, bytes_for(stored.elements, named("float32")))
