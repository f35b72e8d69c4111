"""flex_attention as inductor compiles it: the arguments of its Triton templates.

The operations are those of attention (see attention.py) with the queries' rows of all heads. A
block mask's shape is in the trace and its values are not: which pairs it keeps is known only where
it has a single block, as without a block mask; else the operations stay unknown. A mask within that
block and a function of the scores skip nothing.

Source: pytorch torch/_inductor/kernel/flex (2.13): flex_attention.py, templates/*.jinja,
def_kernel; torch/nn/attention/flex_attention.py, _create_empty_block_mask.
"""

import math
from typing import Final

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_of, gemm_flops, total

NAME: Final = "flex_attention"
_BACKWARD: Final = "flex_attention_backward"
# LSE, DELTA, DO, DQ and DV stand behind Q, K and V of the backward pass, DK last.
_STATISTICS: Final = (3, 4)
_OUTPUT_GRADIENT: Final = 5
_GRADIENTS: Final = (6, 7)
_MASK_UNKNOWN: Final = "the trace does not hold which blocks of scores the block mask keeps"


def flex_attention(call: OpCall) -> Cost | None:
    """(Q [..., S, D], K [..., T, D], V [..., T, D_v], statistics, block mask, ..., output)."""
    query, key, value = call.tensor(0), call.tensor(1), call.tensor(2)
    tensors = call.tensors_after(2)
    if query is None or key is None or value is None or len(tensors) < 2:
        return None
    if not _fit(query, key, value):
        return None
    backward = _BACKWARD in call.name
    if backward:
        written = [*map(call.tensor, _GRADIENTS), tensors[-1]]
        read = [*map(call.tensor, (*_STATISTICS, _OUTPUT_GRADIENT))]
        if None in written or None in read:
            return None
        others = tensors[len(read) + len(written) - 1 : -1]
    else:
        # The logarithm of the softmax's sum, and in newer versions its maximum.
        statistics = [tensor for tensor in tensors[:2] if tensor.shape == query.shape[:-1]]
        written, read = [*statistics, tensors[-1]], []
        others = tensors[len(statistics) : -1]
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    of_scores, of_values = query.shape[-1], value.shape[-1]
    per_pair = 2 * (3 * of_scores + 2 * of_values if backward else of_scores + of_values)
    flops = None
    if _keeps_all(others):
        flops = gemm_flops(call, query.dtype, pairs * per_pair)
    return Cost(
        flops=flops,
        bytes_read=total((bytes_of(query, key, value), bytes_of(*read), bytes_of(*others))),
        bytes_written=bytes_of(*written),
        assumptions=() if flops is not None else (_MASK_UNKNOWN,),
        full_attention_flops=pairs * per_pair,
        recomputed_flops=2 * pairs * of_scores if backward else 0,
        weight_bytes=0,
        key_value_bytes=bytes_of(key, value),
    )


def _fit(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether these are queries, keys and values; decoding has an axis of grouped heads more."""
    ranks = len(query.shape), len(key.shape), len(value.shape)
    if min(ranks) < 4 or query.dtype is None:
        return False
    return query.shape[-1] == key.shape[-1] and key.shape[-2] == value.shape[-2]


def _keeps_all(others: tuple[Tensor, ...]) -> bool:
    """Whether the block mask, the numbers of blocks and their indices, has one block."""
    integers = [t for t in others if t.dtype is not None and t.dtype.kind == "integer"]
    if len(integers) < 2:
        return False
    counts, indices = integers[:2]
    return len(indices.shape) == 4 and counts.elements == indices.elements == 1
