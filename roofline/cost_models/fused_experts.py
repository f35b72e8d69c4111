"""vLLM's fused mixture of experts: two products for each pair of a token and one of its experts.

2 * tokens * top_k * (w1 + w2) operations, w1 and w2 the elements of one expert's weights. Which
experts the tokens chose is not in a trace: how many weights are read is known of a single token
only, whose experts are all different. `vllm::moe_forward` finds its weights by the layer's name and
`vllm::unified_attention*` its lengths: of these the arguments tell neither.

Source: vLLM vllm/model_executor/layers/fused_moe/fused_moe.py, fused_experts_impl.
"""

from typing import Final

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, matmul_flops, total
from gpuprof.roofline.cost_models.registry import cost_model

_GATE: Final = "the gate between the two products is not counted"
_CHOICE: Final = "which experts the tokens chose is not in the trace, nor how many different ones"


@cost_model("vllm::inplace_fused_experts", "vllm::outplace_fused_experts")
def fused_experts(call: OpCall) -> Cost | None:
    """(hidden [tokens, k], w1 [experts, 2 n, k], w2 [experts, k, n], topk_weights, topk_ids, ...).

    Of packed weights the shape is not that of the product. With an expert map some of the chosen
    experts are on other ranks. Scales and biases are of those experts only that a token met.
    """
    hidden, first, second = (call.tensor(position) for position in range(3))
    gates, chosen = call.tensor(3), call.tensor(4)
    if hidden is None or first is None or second is None or chosen is None:
        return None
    if len(hidden.shape) != 2 or len(first.shape) != 3 or len(second.shape) != 3:
        return None
    tokens, size = hidden.shape
    experts, inner = second.shape[0], second.shape[2]
    if first.shape != (experts, 2 * inner, size) or second.shape[1] != size:
        return None
    others = call.tensors_after(4)
    if any(_is_expert_map(tensor) for tensor in others) or not _same_product(hidden, first, second):
        return None
    per_expert = 3 * inner * size
    read_weights = None
    if tokens == 1 and not others:
        read_weights = bytes_for(chosen.elements * per_expert, first.dtype)
    return Cost(
        flops=matmul_flops(first.dtype, 2 * chosen.elements * per_expert),
        bytes_read=total((bytes_of(hidden, gates, chosen), read_weights)),
        bytes_written=bytes_for(hidden.elements, hidden.dtype),
        assumptions=(_GATE,) if tokens == 1 else (_GATE, _CHOICE),
        weight_bytes=read_weights,
        key_value_bytes=0,
    )


def _is_expert_map(tensor: Tensor) -> bool:
    integer = tensor.dtype is not None and tensor.dtype.kind == "integer"
    return len(tensor.shape) == 1 and (integer or tensor.dtype is None)


def _same_product(hidden: Tensor, first: Tensor, second: Tensor) -> bool:
    """Whether the weights' type is that of the product: 8-bit integers may be widened before."""
    if first.dtype is None or hidden.dtype is None or first.dtype != second.dtype:
        return False
    return first.dtype == hidden.dtype or first.dtype.precision == "fp8"
