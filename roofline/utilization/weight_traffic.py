"""What a step has to read of its model: weights, and keys and values of attention.

Weights are the matrices that activations are multiplied with: the second operand of a product of
two matrices. Of a batched product the second operand counts with the keys and values, which it is
where attention is written out. Each call reads its operand once.
"""

from typing import Final

from gpuprof.roofline.cost_models.attention_signatures import COMPOSITE_FORWARD, FORWARD
from gpuprof.roofline.cost_models.call import OpCall
from gpuprof.roofline.cost_models.counting import bytes_of

# Positions of the weight and of its scales in the operator's schema
# (pytorch aten/src/ATen/native/native_functions.yaml).
WEIGHT_POSITIONS: Final[dict[str, tuple[int, ...]]] = {
    "aten::mm": (1,),
    "aten::addmm": (2,),
    "aten::addmm_": (2,),
    "aten::_addmm_activation": (2,),
    "aten::addmv": (1,),
    "aten::addmv_": (1,),
    "aten::linear": (1,),
    "aten::mkldnn_linear": (1,),
    "aten::_scaled_mm": (1, 3),
    "aten::_int_mm": (1,),
    "aten::_weight_int8pack_mm": (1, 2),
    "aten::_weight_int4pack_mm": (1, 3),
    "aten::_weight_int4pack_mm_for_cpu": (1, 3),
    "aten::_weight_int4pack_mm_with_scales_and_zeros": (1, 3, 4),
}
EXPERT_PRODUCTS: Final = frozenset({"aten::_grouped_mm", "aten::_scaled_grouped_mm"})
BATCHED_PRODUCTS: Final[dict[str, int]] = {"aten::bmm": 1, "aten::baddbmm": 2, "aten::baddbmm_": 2}
# Attention of a forward pass: operators that do it in one kernel.
ATTENTION: Final = {**FORWARD, **COMPOSITE_FORWARD}

# Operators that read weights, keys or values.
READS_WEIGHTS: Final = (
    WEIGHT_POSITIONS.keys() | EXPERT_PRODUCTS | BATCHED_PRODUCTS.keys() | ATTENTION.keys()
)


def weight_bytes(call: OpCall) -> int | None:
    """Bytes of weights that `call` reads, 0 where it has none; None where their dtype is unknown.

    A grouped product (mixture of experts) reads at most as many experts as it has rows.
    """
    if call.name in EXPERT_PRODUCTS:
        rows, experts = call.tensor(0), call.tensor(1)
        if rows is None or experts is None or len(experts.shape) != 3 or experts.bytes is None:
            return None
        held = max(experts.shape[0], 1)
        return experts.bytes // held * min(held, rows.shape[0])
    positions = WEIGHT_POSITIONS.get(call.name, ())
    return bytes_of(*(call.tensor(position) for position in positions))


def key_value_bytes(call: OpCall) -> int | None:
    """Bytes of keys and values that `call` reads, 0 where it has none; None where not known.

    Of a paged or partly filled cache the trace does not tell which part is read.
    """
    if call.name in BATCHED_PRODUCTS:
        return bytes_of(call.tensor(BATCHED_PRODUCTS[call.name]))
    where = ATTENTION.get(call.name)
    if where is None:
        return 0
    if any(call.has(position) for position in where.unknown_if_present):
        return None
    return bytes_of(call.tensor(where.query + 1), call.tensor(where.query + 2))
