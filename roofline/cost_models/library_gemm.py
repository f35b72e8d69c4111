"""Matrix products of serving libraries: vLLM, SGLang and AITER.

Sources of the positions: vLLM csrc/torch_bindings.cpp (`_C::`) and vllm/model_executor/layers/
utils.py (`vllm::`), SGLang sgl-kernel/csrc/common_extension.cc (`sgl_kernel::`), AITER's calls as
traces record them. 2 M N K operations each, counted like those of quantized_gemm; the right operand
is the weight, with its scales.
"""

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost, MatrixProduct
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, matmul_flops
from gpuprof.roofline.cost_models.gemm import linear, product
from gpuprof.roofline.cost_models.registry import cost_model
from gpuprof.roofline.dtypes import DType, named


@cost_model("aiter::gemm_a16w16")
def gemm_a16w16(call: OpCall) -> Cost | None:
    """(A [M, K], B [N, K], bias, output dtype, ...)."""
    left, right = call.tensor(0), call.tensor(1)
    if left is None or right is None or len(left.shape) != 2 or len(right.shape) != 2:
        return None
    if left.shape[1] != right.shape[1]:
        return None
    shape, output = (left.shape[0], right.shape[0]), call.dtype(3)
    bias = call.tensor(2)
    return product(call, left, right, shape, left.shape[1], addend=bias, output_dtype=output)


# A function that chooses a kernel of its own or calls torch's linear.
cost_model("vllm::rocm_unquantized_gemm", composite=True)(linear)


def _scaled(
    left: Tensor | None,
    right: Tensor | None,
    output: DType | None,
    scales: tuple[Tensor | None, Tensor | None],
    bias: Tensor | None,
) -> Cost | None:
    """[M, K] @ [K, N] of 8-bit operands, with the scales of each."""
    if left is None or right is None or len(left.shape) != 2 or len(right.shape) != 2:
        return None
    if left.shape[1] != right.shape[0]:
        return None
    rows, inner, columns = *left.shape, right.shape[1]
    return Cost(
        flops=matmul_flops(left.dtype, 2 * rows * columns * inner),
        bytes_read=bytes_of(left, right, *scales, bias),
        bytes_written=bytes_for(rows * columns, output),
        weight_bytes=bytes_of(right, scales[1]),
        key_value_bytes=0,
        product=MatrixProduct(rows, inner, columns),
    )


@cost_model("_C::cutlass_scaled_mm")
def cutlass_scaled_mm(call: OpCall) -> Cost | None:
    """(out, a, b, scales of a, scales of b, bias)."""
    output = call.tensor(0)
    dtype = None if output is None else output.dtype
    scales = call.tensor(3), call.tensor(4)
    return _scaled(call.tensor(1), call.tensor(2), dtype, scales, call.tensor(5))


@cost_model("sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm")
def sgl_scaled_mm(call: OpCall) -> Cost | None:
    """(a, b, scales of a, scales of b, output dtype, bias)."""
    scales = call.tensor(2), call.tensor(3)
    return _scaled(call.tensor(0), call.tensor(1), call.dtype(4), scales, call.tensor(5))


@cost_model("_C::cutlass_scaled_fp4_mm")
def cutlass_scaled_fp4_mm(call: OpCall) -> Cost | None:
    """(out [M, N], a [M, K / 2], b [N, K / 2], block scales of a and b, alpha).

    The operands are bytes that hold two float4 values each.
    """
    output, left, right = call.tensor(0), call.tensor(1), call.tensor(2)
    if output is None or left is None or right is None or len(left.shape) != 2:
        return None
    if len(right.shape) != 2 or left.shape[1] != right.shape[1]:
        return None
    rows, packed, columns = *left.shape, right.shape[0]
    return Cost(
        flops=matmul_flops(named("float4_e2m1fn_x2"), 2 * rows * columns * 2 * packed),
        bytes_read=bytes_of(left, right, *map(call.tensor, (3, 4, 5))),
        bytes_written=bytes_for(rows * columns, output.dtype),
        weight_bytes=bytes_of(right, call.tensor(4)),
        key_value_bytes=0,
        product=MatrixProduct(rows, packed, columns),
    )
