"""Fused layers of common libraries: gates, RMS norm with residual, rotary embedding, KV cache.

Sources: vLLM csrc/torch_bindings.cpp (`_C::`, `_C_cache_ops::`) and vllm/_aiter_ops.py, SGLang
sgl-kernel/csrc/common_extension.cc (`sgl_kernel::`), AITER's calls as traces record them
(`aiter::`), Liger-Kernel src/liger_kernel/ops (autograd functions, recorded by class name).

Operations an element: silu(a) * b 5, its gradients 12 (a sigmoid again, da and db); gelu(a) * b 6,
tanh form 10. RMS norm 4, 5 with the addition of a residual. A rotation is 6 a pair, 3 an element.
"""

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

_SAVED_DTYPE = "saved tensors have the gradient's dtype"
_SILU_AND_PRODUCT = 5
_SILU_AND_PRODUCT_BACKWARD = 12
_GATES = {
    "_C::silu_and_mul": _SILU_AND_PRODUCT,
    "_C::mul_and_silu": _SILU_AND_PRODUCT,
    "_C::gelu_and_mul": 6,
    "_C::gelu_tanh_and_mul": 10,
    "sgl_kernel::silu_and_mul": _SILU_AND_PRODUCT,
    "sgl_kernel::gelu_and_mul": 6,
    "sgl_kernel::gelu_tanh_and_mul": 10,
}


@cost_model(*_GATES)
def gate(call: OpCall) -> Cost | None:
    """(out [..., d], input [..., 2 d]): one half through the activation, times the other."""
    output, inputs = call.tensor(0), call.tensor(1)
    if output is None or inputs is None or inputs.elements != 2 * output.elements:
        return None
    return Cost(
        flops=vector_flops(inputs.dtype, _GATES[call.name] * output.elements),
        bytes_read=inputs.bytes,
        bytes_written=bytes_for(output.elements, output.dtype),
    )


@cost_model("LigerSiLUMulFunction")
def liger_silu_mul(call: OpCall) -> Cost | None:
    """(a, b): silu(a) * b."""
    a, b = call.tensor(0), call.tensor(1)
    if a is None or b is None or a.shape != b.shape:
        return None
    return Cost(
        flops=vector_flops(a.dtype, _SILU_AND_PRODUCT * a.elements),
        bytes_read=bytes_of(a, b),
        bytes_written=bytes_for(a.elements, a.dtype),
    )


@cost_model("LigerSiLUMulFunctionBackward")
def liger_silu_mul_backward(call: OpCall) -> Cost | None:
    """(dc): reads the saved a and b, which have its shape, and writes their gradients."""
    gradient = call.tensor(0)
    if gradient is None:
        return None
    saved = bytes_for(2 * gradient.elements, gradient.dtype)
    return Cost(
        flops=vector_flops(gradient.dtype, _SILU_AND_PRODUCT_BACKWARD * gradient.elements),
        bytes_read=total((gradient.bytes, saved)),
        bytes_written=saved,
        assumptions=(_SAVED_DTYPE,),
    )


@cost_model("_C::rms_norm", "sgl_kernel::rmsnorm", "aiter::rmsnorm")
def rms_norm(call: OpCall) -> Cost | None:
    """(out, input, weight, epsilon)."""
    output, inputs, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    if output is None or inputs is None or weight is None:
        return None
    return Cost(
        flops=vector_flops(inputs.dtype, 4 * inputs.elements),
        bytes_read=bytes_of(inputs, weight),
        bytes_written=bytes_for(output.elements, output.dtype),
    )


@cost_model("aiter::rms_norm", "vllm::rocm_aiter_rms_norm")
def aiter_rms_norm(call: OpCall) -> Cost | None:
    """(input, weight, epsilon, ...) -> output."""
    inputs, weight = call.tensor(0), call.tensor(1)
    if inputs is None or weight is None:
        return None
    return Cost(
        flops=vector_flops(inputs.dtype, 4 * inputs.elements),
        bytes_read=bytes_of(inputs, weight),
        bytes_written=bytes_for(inputs.elements, inputs.dtype),
    )


@cost_model("LigerRMSNormFunction")
def liger_rms_norm(call: OpCall) -> Cost | None:
    """(X, W): writes Y and a float32 1/RMS a row."""
    inputs, weight = call.tensor(0), call.tensor(1)
    if inputs is None or weight is None or not inputs.shape:
        return None
    rows = inputs.elements // max(inputs.shape[-1], 1)
    written = (bytes_for(inputs.elements, inputs.dtype), bytes_for(rows, named("float32")))
    return Cost(
        flops=vector_flops(inputs.dtype, 4 * inputs.elements),
        bytes_read=bytes_of(inputs, weight),
        bytes_written=total(written),
    )


@cost_model("LigerRMSNormFunctionBackward")
def liger_rms_norm_backward(call: OpCall) -> Cost | None:
    """(dY): reads the saved X, W and 1/RMS too; writes dX and dW. 9 operations an element."""
    gradient = call.tensor(0)
    if gradient is None or not gradient.shape:
        return None
    width = gradient.shape[-1]
    rows = gradient.elements // max(width, 1)
    weight = bytes_for(width, gradient.dtype)
    inputs = bytes_for(gradient.elements, gradient.dtype)
    return Cost(
        flops=vector_flops(gradient.dtype, 9 * gradient.elements),
        bytes_read=total((gradient.bytes, inputs, weight, bytes_for(rows, named("float32")))),
        bytes_written=total((inputs, weight)),
        assumptions=(_SAVED_DTYPE,),
    )


def _added_rms_norm(
    inputs: Tensor | None, residual: Tensor | None, weight: Tensor | None
) -> Cost | None:
    if inputs is None or residual is None or weight is None:
        return None
    return Cost(
        flops=vector_flops(inputs.dtype, 5 * inputs.elements),
        bytes_read=bytes_of(inputs, residual, weight),
        bytes_written=total(
            (
                bytes_for(inputs.elements, inputs.dtype),
                bytes_for(residual.elements, residual.dtype),
            )
        ),
    )


@cost_model(
    "_C::fused_add_rms_norm",
    "sgl_kernel::fused_add_rmsnorm",
    "vllm::rocm_aiter_rmsnorm2d_fwd_with_add",
)
def fused_add_rms_norm(call: OpCall) -> Cost | None:
    """(input, residual, weight, epsilon): both written in place, or as new tensors (vLLM)."""
    return _added_rms_norm(call.tensor(0), call.tensor(1), call.tensor(2))


@cost_model("aiter::add_rmsnorm", "aiter::rmsnorm2d_fwd_with_add_ck")
def aiter_add_rms_norm(call: OpCall) -> Cost | None:
    """(out, input, residual in, residual out, weight, epsilon)."""
    return _added_rms_norm(call.tensor(1), call.tensor(2), call.tensor(4))


@cost_model("_C::rotary_embedding", "sgl_kernel::rotary_embedding")
def rotary_embedding(call: OpCall) -> Cost | None:
    """(positions, query, key, head_size, cos_sin_cache [positions, rotated size], is_neox).

    Rotates the first `rotated size` elements of each head in place.
    """
    positions, query, key = call.tensor(0), call.tensor(1), call.tensor(2)
    head_size, cache = call.integer(3), call.tensor(4)
    if positions is None or query is None or not head_size or cache is None:
        return None
    if len(cache.shape) != 2:
        return None
    rows, rotated = cache.shape
    heads = (query.elements + (0 if key is None else key.elements)) // head_size
    moved = bytes_for(heads * rotated, query.dtype)
    angles = bytes_for(min(positions.elements, rows) * rotated, cache.dtype)
    return Cost(
        flops=vector_flops(query.dtype, 3 * heads * rotated),
        bytes_read=total((positions.bytes, moved, angles)),
        bytes_written=moved,
        assumptions=("positions are not in the trace: each counted once",),
    )


@cost_model("LigerRopeFunction")
def liger_rope(call: OpCall) -> Cost | None:
    """(q, k, cos, sin): rotates whole heads."""
    query, key, cosine, sine = (call.tensor(position) for position in range(4))
    if query is None or key is None or cosine is None or sine is None:
        return None
    elements = query.elements + key.elements
    return Cost(
        flops=vector_flops(query.dtype, 3 * elements),
        bytes_read=bytes_of(query, key, cosine, sine),
        bytes_written=bytes_for(elements, query.dtype),
    )


@cost_model("LigerRopeFunctionBackward")
def liger_rope_backward(call: OpCall) -> Cost | None:
    """(dq [B, H, S, D], dk): rotates the gradients back in place."""
    query, key = call.tensor(0), call.tensor(1)
    if query is None or key is None or len(query.shape) != 4:
        return None
    elements = query.elements + key.elements
    # The saved cosines and sines are no arguments: [1, S, D] each.
    angles = bytes_for(2 * query.shape[2] * query.shape[3], query.dtype)
    return Cost(
        flops=vector_flops(query.dtype, 3 * elements),
        bytes_read=total((query.bytes, key.bytes, angles)),
        bytes_written=bytes_for(elements, query.dtype),
        assumptions=("all sequences share the angles, which have the gradient's dtype",),
    )


@cost_model("_C_cache_ops::reshape_and_cache_flash", "sglang::store_cache")
def cache_write(call: OpCall) -> Cost | None:
    """(key, value, key_cache, value_cache, slots, ...): the rows go to their slots."""
    key, value, slots = call.tensor(0), call.tensor(1), call.tensor(4)
    key_cache, value_cache = call.tensor(2), call.tensor(3)
    if key is None or value is None or key_cache is None or value_cache is None or slots is None:
        return None
    written = bytes_for(key.elements, key_cache.dtype), bytes_for(value.elements, value_cache.dtype)
    return copy_cost(bytes_of(key, value, slots), total(written))


# It stores keys and values by one of the operators above.
register_composites("vllm::unified_kv_cache_update")
