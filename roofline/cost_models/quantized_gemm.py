"""Matrix products with scales or packed weights, and grouped ones.

Products of scaled operands (float8, float4, int8) count 2 M N K at the operands' precision;
products with weights that are only stored in int8 or int4 count at the activation's, in which they
are computed after unpacking. A float4_e2m1fn_x2 element packs two values, so K is twice the
recorded size. Scales are read too. The output's dtype is an argument. The right operand is the
weight, with its scales.

Source: pytorch aten/src/ATen/native/cuda/ScaledBlas.cpp, GroupedBlas.cpp and int4mm.cu (layouts).
"""

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost, MatrixProduct
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, gemm_flops, total
from gpuprof.roofline.cost_models.registry import cost_model
from gpuprof.roofline.dtypes import DType, named

# torch.nn.functional.ScalingType: what the scales of each recipe are stored in.
_SCALE_DTYPES = {
    0: "float32",  # TensorWise
    1: "float32",  # RowWise
    2: "float8_e4m3fn",  # BlockWise1x16
    3: "float8_e8m0fnu",  # BlockWise1x32
    4: "float32",  # BlockWise1x128
    5: "float32",  # BlockWise128x128
}
# (experts, inner size, columns)
_EXPERT_AXES = 3
_ALL_GROUPS = "each group of the weights has rows"


def _output_dtype(call: OpCall, position: int, default: DType | None) -> DType | None:
    """The dtype argument at `position`, whose absence means `default`."""
    return call.dtype(position) if call.has(position) else default


def _scale_bytes(call: OpCall, scales: int, recipes: int) -> int | None:
    """Bytes of a list of scales, whose dtypes the recipes imply."""
    tensors, kinds = call.tensors(scales), call.integers(recipes)
    if tensors is None or kinds is None or len(tensors) != len(kinds):
        return None
    return total(
        bytes_for(tensor.elements, named(_SCALE_DTYPES[kind]) if kind in _SCALE_DTYPES else None)
        for tensor, kind in zip(tensors, kinds, strict=True)
    )


def _scaled_product(
    call: OpCall,
    scales: int | None,
    weight_scales: int | None,
    bias: Tensor | None,
    output: DType | None,
) -> Cost | None:
    """`weight_scales` are those bytes of `scales` that belong to the right operand."""
    left, right = call.tensor(0), call.tensor(1)
    if left is None or right is None or len(left.shape) != 2 or len(right.shape) != 2:
        return None
    if left.shape[1] != right.shape[0] or left.dtype is None:
        return None
    rows, inner, columns = left.shape[0], left.shape[1], right.shape[1]
    count = 2 * rows * columns * inner * left.dtype.values_per_element
    return Cost(
        flops=gemm_flops(call, left.dtype, count),
        bytes_read=total((bytes_of(left, right, bias), scales)),
        bytes_written=bytes_for(rows * columns, output),
        weight_bytes=total((right.bytes, weight_scales)),
        key_value_bytes=0,
        product=MatrixProduct(rows, inner, columns),
    )


@cost_model("aten::_scaled_mm")
def scaled_mm(call: OpCall) -> Cost | None:
    """(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)."""
    left = call.tensor(0)
    scales = bytes_of(call.tensor(2), call.tensor(3), call.tensor(5))
    output = _output_dtype(call, 6, None if left is None else left.dtype)
    return _scaled_product(call, scales, bytes_of(call.tensor(3)), call.tensor(4), output)


@cost_model("aten::_scaled_mm_v2")
def scaled_mm_v2(call: OpCall) -> Cost | None:
    """(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias, out_dtype)."""
    left = call.tensor(0)
    weight_scales = _scale_bytes(call, 5, 6)
    scales = total((_scale_bytes(call, 2, 3), weight_scales))
    output = _output_dtype(call, 9, None if left is None else left.dtype)
    return _scaled_product(call, scales, weight_scales, call.tensor(8), output)


@cost_model("aten::_int_mm")
def int_mm(call: OpCall) -> Cost | None:
    """[M, K] @ [K, N] of int8, accumulated and written in int32."""
    return _scaled_product(call, 0, 0, None, named("int32"))


def _unpacked(call: OpCall, columns: int, weight: Tensor, *scales: Tensor | None) -> Cost | None:
    inputs = call.tensor(0)
    if inputs is None or len(inputs.shape) != 2:
        return None
    rows, inner = inputs.shape
    return Cost(
        flops=gemm_flops(call, inputs.dtype, 2 * rows * columns * inner),
        bytes_read=bytes_of(inputs, weight, *scales),
        bytes_written=bytes_for(rows * columns, inputs.dtype),
        weight_bytes=bytes_of(weight, *scales),
        key_value_bytes=0,
        product=MatrixProduct(rows, inner, columns),
    )


@cost_model("aten::_weight_int8pack_mm")
def weight_int8pack_mm(call: OpCall) -> Cost | None:
    """(self [M, K], mat2 [N, K] int8, scales [N])."""
    weight = call.tensor(1)
    if weight is None or len(weight.shape) != 2:
        return None
    return _unpacked(call, weight.shape[0], weight, call.tensor(2))


@cost_model(
    "aten::_weight_int4pack_mm",
    "aten::_weight_int4pack_mm_for_cpu",
    "aten::_weight_int4pack_mm_with_scales_and_zeros",
)
def weight_int4pack_mm(call: OpCall) -> Cost | None:
    """(self [M, K], packed weight, group size, scales and zeros).

    CUDA packs the weight as int32 [N / 8, K / (inner tiles * 16), 32, inner tiles / 2], the CPU as
    uint8 [N, K / 2].
    """
    weight = call.tensor(1)
    if weight is None or len(weight.shape) not in (2, 4):
        return None
    columns = weight.shape[0] * (8 if len(weight.shape) == 4 else 1)
    return _unpacked(call, columns, weight, call.tensor(3), call.tensor(4))


def _grouped(
    call: OpCall,
    offsets: Tensor | None,
    scales: int | None,
    weight_scales: int | None,
    output: DType | None,
) -> Cost | None:
    """Products of groups of rows, columns or inner indices that `offsets` divides.

    [M, K] @ [G, K, N]: each row meets one group's weights. [G, M, K] @ [K, N]: each column.
    [M, K] @ [K, N]: K is divided, giving [G, M, N]. [G, M, K] @ [G, K, N]: a batched product.

    The weights, experts, are the right operand of three axes, of which no more are read than there
    are rows. Without one the call is the gradient of weights, or its weights are unknown.
    `weight_scales` are those bytes of `scales` that belong to the right operand.
    """
    left, right = call.tensor(0), call.tensor(1)
    if left is None or right is None or left.dtype is None:
        return None
    ranks = len(left.shape), len(right.shape)
    if ranks not in ((2, 2), (2, 3), (3, 2), (3, 3)):
        return None
    if left.shape[-1] != right.shape[-2]:
        return None
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    right_bytes = right.bytes
    assumptions: tuple[str, ...] = ()
    outputs = rows * columns
    if ranks == (3, 3):
        if left.shape[0] != right.shape[0]:
            return None
        outputs *= left.shape[0]
    elif ranks == (2, 2):
        if offsets is None:
            return None
        outputs *= offsets.elements
        # Each inner index belongs to one group: products as of one matrix, results of each group.
    elif ranks == (2, 3):
        groups = max(right.shape[0], 1)
        read = min(groups, rows)
        right_bytes = None if right_bytes is None else right_bytes // groups * read
        weight_scales = None if weight_scales is None else weight_scales * read // groups
        assumptions = (_ALL_GROUPS,)
    has_experts = len(right.shape) == _EXPERT_AXES
    products = 2 * rows * columns * inner * (left.shape[0] if ranks == (3, 3) else 1)
    return Cost(
        flops=gemm_flops(call, left.dtype, products * left.dtype.values_per_element),
        bytes_read=total((left.bytes, right_bytes, bytes_of(offsets), scales)),
        bytes_written=bytes_for(outputs, output),
        assumptions=assumptions,
        weight_bytes=total((right_bytes, weight_scales)) if has_experts else None,
        key_value_bytes=0,
        product=MatrixProduct(rows, inner, columns),
    )


@cost_model("aten::_grouped_mm")
def grouped_mm(call: OpCall) -> Cost | None:
    """(self, mat2, offs, bias, out_dtype)."""
    left = call.tensor(0)
    output = _output_dtype(call, 4, None if left is None else left.dtype)
    return _grouped(call, call.tensor(2), 0, 0, output)


@cost_model("aten::_scaled_grouped_mm")
def scaled_grouped_mm(call: OpCall) -> Cost | None:
    """(self, mat2, scale_a, scale_b, offs, bias, scale_result, out_dtype); bfloat16 by default."""
    scales, weight_scales = bytes_of(call.tensor(2), call.tensor(3)), bytes_of(call.tensor(3))
    output = _output_dtype(call, 7, named("bfloat16"))
    return _grouped(call, call.tensor(4), scales, weight_scales, output)


@cost_model("aten::_scaled_grouped_mm_v2")
def scaled_grouped_mm_v2(call: OpCall) -> Cost | None:
    """(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs, bias, ...)."""
    weight_scales = _scale_bytes(call, 5, 6)
    scales = total((_scale_bytes(call, 2, 3), weight_scales))
    output = _output_dtype(call, 10, named("bfloat16"))
    return _grouped(call, call.tensor(8), scales, weight_scales, output)
