"""Convolutions: 2 * N * prod(out) * C_out * (C_in / groups) * prod(kernel) operations.

That is 2 * N * prod(space) * weight.elements, where `space` is the output's spatial shape, or the
input's for a transposed convolution, whose forward is the input gradient of the ordinary one. The
two gradients each do the same products as the forward. Stride, padding and dilation act through
the output shape only; taps on padding are counted although an implementation may skip them.
FLOPs are those of the direct algorithm (effective): Winograd and FFT kernels execute fewer, and
the cost says so where a kernel's name tells. The filter is the weight.

Source: Dumoulin and Visin 2016 (arXiv 1603.07285) for the shapes; torch.utils.flop_counter,
conv_flop_count and, but for groups, conv_backward_flop; Lavin and Gray 2015 (arXiv 1509.09308) for
Winograd.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost, Share
from gpuprof.roofline.cost_models.counting import (
    bytes_for,
    bytes_of,
    convolution_flops,
    total,
    vector_flops,
)
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.kernel_names.element_types import fast_algorithm, product_element_type

# cuDNN: sm80_xmma_dgrad_implicit_gemm..., cutlass_tensorop_s1688wgrad_optimized_tf32...; MIOpen:
# igemm_bwd_gtcx3_nhwc_bf16..., igemm_wrw_gtcx3...; Composable Kernel: grouped_conv_bwd_data...
_INPUT_GRADIENT: Final = r"dgrad|igemm_bwd|conv_?(?:\w+_)?bwd_data"
_WEIGHT_GRADIENT: Final = r"wgrad|igemm_wrw|conv_?(?:\w+_)?bwd_weight"

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Positions:
    """Where a convolution operator keeps its arguments. None: it has no such argument."""

    stride: int
    padding: int
    dilation: int | None = None
    bias: int | None = 2
    groups: int | None = None
    # A position, or the fixed answer.
    transposed: int | bool = False
    output_padding: int | None = None
    # A tensor of the output's shape that is added to it.
    addend: int | None = None
    allow_tf32: int | None = None


# pytorch aten/src/ATen/native/native_functions.yaml
_CONVOLUTION = _Positions(stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8)
_FORWARD = {
    "aten::convolution_overrideable": _CONVOLUTION,
    "aten::cudnn_convolution": _Positions(
        bias=None, padding=2, stride=3, dilation=4, groups=5, allow_tf32=8
    ),
    "aten::cudnn_convolution_transpose": _Positions(
        bias=None,
        padding=2,
        output_padding=3,
        stride=4,
        dilation=5,
        groups=6,
        transposed=True,
        allow_tf32=9,
    ),
    "aten::cudnn_convolution_relu": _Positions(stride=3, padding=4, dilation=5, groups=6),
    "aten::cudnn_convolution_add_relu": _Positions(
        addend=2, bias=4, stride=5, padding=6, dilation=7, groups=8
    ),
    "aten::miopen_convolution": _Positions(padding=3, stride=4, dilation=5, groups=6),
    "aten::miopen_depthwise_convolution": _Positions(padding=3, stride=4, dilation=5, groups=6),
    "aten::miopen_convolution_transpose": _Positions(
        padding=3, output_padding=4, stride=5, dilation=6, groups=7, transposed=True
    ),
    "aten::miopen_convolution_relu": _Positions(stride=3, padding=4, dilation=5, groups=6),
    "aten::miopen_convolution_add_relu": _Positions(
        addend=2, bias=4, stride=5, padding=6, dilation=7, groups=8
    ),
    "aten::mkldnn_convolution": _Positions(padding=3, stride=4, dilation=5, groups=6),
    "aten::_slow_conv2d_forward": _Positions(bias=3, stride=4, padding=5),
    "aten::slow_conv3d_forward": _Positions(bias=3, stride=4, padding=5),
    "aten::slow_conv_dilated2d": _Positions(bias=3, stride=4, padding=5, dilation=6),
    "aten::slow_conv_dilated3d": _Positions(bias=3, stride=4, padding=5, dilation=6),
    "aten::_conv_depthwise2d": _Positions(bias=3, stride=4, padding=5, dilation=6),
    "aten::conv_depthwise3d": _Positions(bias=3, stride=4, padding=5, dilation=6),
    "aten::slow_conv_transpose2d": _Positions(
        bias=3, stride=4, padding=5, output_padding=6, dilation=7, transposed=True
    ),
    "aten::slow_conv_transpose3d": _Positions(
        bias=3, stride=4, padding=5, output_padding=6, dilation=7, transposed=True
    ),
    "aten::_nnpack_spatial_convolution": _Positions(padding=3, stride=4),
}
_COMPOSITE_FORWARD = {
    "aten::convolution": _CONVOLUTION,
    "aten::_convolution": replace(_CONVOLUTION, allow_tf32=12),
    "aten::conv1d": _Positions(stride=3, padding=4, dilation=5, groups=6),
    "aten::conv2d": _Positions(stride=3, padding=4, dilation=5, groups=6),
    "aten::conv3d": _Positions(stride=3, padding=4, dilation=5, groups=6),
    "aten::thnn_conv2d": _Positions(bias=3, stride=4, padding=5),
    "aten::slow_conv3d": _Positions(bias=3, stride=4, padding=5),
}


def _expand(values: tuple[_T, ...] | None, axes: int) -> tuple[_T, ...] | None:
    """One value for each spatial axis; a single one stands for all."""
    if values is None:
        return None
    return values * axes if len(values) == 1 else values if len(values) == axes else None


def _spatial_output(
    call: OpCall, where: _Positions, inputs: Tensor, weight: Tensor, transposed: bool
) -> tuple[int, ...] | None:
    """The output's spatial shape (formulas: documentation of torch.nn.Conv2d, ConvTranspose2d)."""
    axes = len(weight.shape) - 2
    ones, zeros = (1,) * axes, (0,) * axes
    stride = _expand(call.integers(where.stride), axes)
    padding = _expand(call.integers(where.padding), axes)
    dilation = ones if where.dilation is None else _expand(call.integers(where.dilation), axes)
    extra: tuple[int, ...] | None = zeros
    if transposed and where.output_padding is not None:
        extra = _expand(call.integers(where.output_padding), axes)
    if stride is None or padding is None or dilation is None or extra is None:
        return None
    sizes = []
    rows = zip(
        inputs.shape[-axes:], weight.shape[2:], stride, padding, dilation, extra, strict=True
    )
    for size, kernel, step, pad, spread, more in rows:
        reach = spread * (kernel - 1)
        if transposed:
            sizes.append((size - 1) * step - 2 * pad + reach + more + 1)
        elif step > 0:
            sizes.append((size + 2 * pad - reach - 1) // step + 1)
        else:
            return None
    return tuple(sizes) if all(size >= 0 for size in sizes) else None


def _forward(call: OpCall, where: _Positions) -> Cost | None:
    inputs, weight = call.tensor(0), call.tensor(1)
    if inputs is None or weight is None:
        return None
    axes = len(weight.shape) - 2
    transposed: bool | None
    if isinstance(where.transposed, bool):
        transposed = where.transposed
    else:
        transposed = call.flag(where.transposed)
    if axes < 1 or len(inputs.shape) not in (axes + 1, axes + 2) or transposed is None:
        return None
    output = _spatial_output(call, where, inputs, weight, transposed)
    if output is None:
        return None
    batch = math.prod(inputs.shape[: -axes - 1])
    channels = weight.shape[0]
    if transposed:
        groups = 1 if where.groups is None else call.integer(where.groups)
        if groups is None:
            return None
        channels = weight.shape[1] * groups
    bias = None if where.bias is None else call.tensor(where.bias)
    addend = None if where.addend is None else call.tensor(where.addend)
    space = math.prod(inputs.shape[-axes:] if transposed else output)
    return Cost(
        flops=convolution_flops(
            call,
            inputs.dtype,
            2 * batch * space * weight.elements,
            allow_tf32=None if where.allow_tf32 is None else call.flag(where.allow_tf32),
        ),
        bytes_read=bytes_of(inputs, weight, bias, addend),
        bytes_written=bytes_for(batch * channels * math.prod(output), inputs.dtype),
        assumptions=_effective(call),
        weight_bytes=weight.bytes,
        key_value_bytes=0,
    )


def _effective(call: OpCall) -> tuple[str, ...]:
    """What the count leaves out where the kernels do fewer products."""
    algorithm = fast_algorithm(call.kernels)
    if algorithm is None:
        return ()
    return (f"products of the direct algorithm; the {algorithm} kernel that ran executes fewer",)


for _names, _is_composite in ((_FORWARD, False), (_COMPOSITE_FORWARD, True)):
    for _name, _where in _names.items():

        @cost_model(_name, composite=_is_composite)
        def _convolution(call: OpCall, where: _Positions = _where) -> Cost | None:
            return _forward(call, where)


def _gradients(
    call: OpCall, inputs: Tensor, weight: Tensor, transposed: bool, mask: tuple[bool, ...]
) -> Cost | None:
    """Gradients of input, weight and bias, as `mask` asks for them."""
    output_gradient = call.tensor(0)
    if output_gradient is None or len(mask) != 3 or len(weight.shape) < 3:
        return None
    axes = len(weight.shape) - 2
    large = inputs if transposed else output_gradient
    batch = math.prod(inputs.shape[: -axes - 1])
    products = 2 * batch * math.prod(large.shape[-axes:]) * weight.elements
    of_input, of_weight, of_bias = mask
    matmuls = convolution_flops(
        call, inputs.dtype, products * (of_input + of_weight), allow_tf32=None
    )
    sums = vector_flops(inputs.dtype, output_gradient.elements if of_bias else 0)
    channels = output_gradient.shape[-axes - 1]
    return Cost(
        flops=None if matmuls is None or sums is None else matmuls + sums,
        bytes_read=bytes_of(
            output_gradient, inputs if of_weight else None, weight if of_input else None
        ),
        bytes_written=total(
            (
                bytes_for(inputs.elements if of_input else 0, inputs.dtype),
                bytes_for(weight.elements if of_weight else 0, weight.dtype),
                bytes_for(channels if of_bias else 0, inputs.dtype),
            )
        ),
        assumptions=_effective(call),
        weight_bytes=weight.bytes if of_input else 0,
        key_value_bytes=0,
        shares=(
            _shares(call, inputs, weight, output_gradient, products)
            if of_input and of_weight
            else ()
        ),
    )


def _shares(
    call: OpCall, inputs: Tensor, weight: Tensor, output_gradient: Tensor, products: int
) -> tuple[Share, Share]:
    """What the kernel of each gradient does: as many products as the other one."""
    flops = convolution_flops(call, inputs.dtype, products, allow_tf32=None)
    return (
        Share(
            kernel=_INPUT_GRADIENT,
            flops=flops,
            bytes_read=bytes_of(output_gradient, weight),
            bytes_written=bytes_for(inputs.elements, inputs.dtype),
        ),
        Share(
            kernel=_WEIGHT_GRADIENT,
            flops=flops,
            bytes_read=bytes_of(output_gradient, inputs),
            bytes_written=bytes_for(weight.elements, weight.dtype),
        ),
    )


@cost_model("aten::convolution_backward")
def convolution_backward(call: OpCall) -> Cost | None:
    """(grad_output, input, weight, bias_sizes, stride, ..., transposed at 7, output_mask at 10)."""
    return _masked_backward(call, transposed=call.flag(7), mask=call.flags(10))


@cost_model("aten::convolution_backward_overrideable")
def convolution_backward_overrideable(call: OpCall) -> Cost | None:
    """As convolution_backward without bias_sizes."""
    return _masked_backward(call, transposed=call.flag(6), mask=call.flags(9))


@cost_model("aten::_slow_conv2d_backward")
def slow_conv2d_backward(call: OpCall) -> Cost | None:
    """(grad_output, input, weight, kernel_size, stride, padding, output_mask)."""
    return _masked_backward(call, transposed=False, mask=call.flags(6))


@cost_model(
    "aten::cudnn_convolution_backward_input",
    "aten::miopen_convolution_backward_input",
    "aten::miopen_depthwise_convolution_backward_input",
)
def input_gradient(call: OpCall) -> Cost | None:
    """(self_size, grad_output, weight, ...), of torch before 1.11.

    Traces of that time record the size of what it writes with the caller's arguments only.
    """
    output_gradient, weight = call.tensor(1), call.tensor(2)
    if output_gradient is None or weight is None:
        return None
    result = call.integers(0) or _shape_from_caller(call, 0)
    return _one_gradient(call, output_gradient, weight, weight.shape, result, weight)


@cost_model(
    "aten::cudnn_convolution_backward_weight",
    "aten::miopen_convolution_backward_weight",
    "aten::miopen_depthwise_convolution_backward_weight",
)
def weight_gradient(call: OpCall) -> Cost | None:
    """(weight_size, grad_output, self, ...), of torch before 1.11.

    Traces of that time record the size of the filter with the caller's arguments only.
    """
    output_gradient, inputs = call.tensor(1), call.tensor(2)
    if output_gradient is None or inputs is None:
        return None
    weight = call.integers(0) or _shape_from_caller(call, 2)
    return _one_gradient(call, output_gradient, inputs, weight, weight, None)


def _shape_from_caller(call: OpCall, position: int) -> tuple[int, ...] | None:
    """Of (self, grad_output, weight, ...): cudnn_convolution_backward and its like."""
    tensor = None if call.caller is None else call.caller.tensor(position)
    return None if tensor is None or not tensor.shape else tensor.shape


def _one_gradient(
    call: OpCall,
    output_gradient: Tensor,
    other: Tensor,
    filter_shape: tuple[int, ...] | None,
    result_shape: tuple[int, ...] | None,
    weight: Tensor | None,
) -> Cost | None:
    """Of the output's gradient with `other`."""
    axes = len(output_gradient.shape) - 2
    if axes < 1 or len(other.shape) != axes + 2:
        return None
    products = None
    if filter_shape is not None and len(filter_shape) == axes + 2:
        space = output_gradient.shape[0] * math.prod(output_gradient.shape[2:])
        products = 2 * space * math.prod(filter_shape)
    dtype = other.dtype or product_element_type(call.kernels)
    # All tensors of a convolution have one type, which traces of torch 1.8 leave out.
    read = output_gradient.distinct_elements + other.distinct_elements
    written = None if result_shape is None else math.prod(result_shape)
    return Cost(
        flops=None
        if products is None
        else convolution_flops(call, dtype, products, allow_tf32=call.flag(9)),
        bytes_read=bytes_for(read, dtype),
        bytes_written=bytes_for(written, dtype),
        assumptions=_effective(call),
        weight_bytes=0 if weight is None else bytes_for(weight.distinct_elements, dtype),
        key_value_bytes=0,
    )


def _masked_backward(
    call: OpCall, transposed: bool | None, mask: tuple[bool, ...] | None
) -> Cost | None:
    inputs, weight = call.tensor(1), call.tensor(2)
    if inputs is None or weight is None or transposed is None or mask is None:
        return None
    return _gradients(call, inputs, weight, transposed, mask)


register_composites(
    "aten::cudnn_convolution_backward",
    "aten::miopen_convolution_backward",
    "aten::miopen_depthwise_convolution_backward",
    "aten::_convolution_mode",
    "aten::conv_transpose1d",
    "aten::conv_transpose2d",
    "aten::conv_transpose3d",
    "aten::_convolution_double_backward",
)
