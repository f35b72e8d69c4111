"""Layer, RMS, group and batch normalisation, forward and backward.

Operations an element. Forward: mean 1, variance 3 (subtract, square, sum), normalise 2 (subtract,
scale), weight 1, bias 1. RMS: square, sum, scale and weight. Evaluation with stored statistics: 2
and the affine part. Backward, with x^ = (x - mean) * rstd: x^ 2, dy * w 1, its two sums 3 (one
product with x^), dx 4; dw 2, db 1. RMS backward: x^ 1, dy * w 1, one sum with its product 2, dx 3;
dw 2.

Source: Ioffe and Szegedy 2015 (arXiv 1502.03167), Ba et al. 2016 (1607.06450), Wu and He 2018
(1803.08494), Zhang and Sennrich 2019 (1910.07467), each formula written out.

Bytes are one read of the input although many kernels read it twice: statistics first, then the
result.
"""

import math

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, total, vector_flops
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.dtypes import DType, named

_STATISTICS = 4
_NORMALISE = 2
_BACKWARD = 10
_RMS_STATISTICS = 2
_RMS_BACKWARD = 7


def _statistics_dtype(dtype: DType | None) -> DType | None:
    """What mean and 1/std are kept in: at least float32 (at::acc_type)."""
    return dtype if dtype is None or dtype.bits >= 32 else named("float32")


def _forward(
    inputs: Tensor,
    parameters: tuple[Tensor | None, ...],
    operations: int,
    statistics: int,
    *others: Tensor | None,
) -> Cost:
    """Cost of a normalisation that writes `statistics` values beside its output."""
    affine = sum(parameter is not None for parameter in parameters)
    return Cost(
        flops=vector_flops(inputs.dtype, (operations + affine) * inputs.elements),
        bytes_read=bytes_of(inputs, *parameters, *others),
        bytes_written=total(
            (
                bytes_for(inputs.elements, inputs.dtype),
                bytes_for(statistics, _statistics_dtype(inputs.dtype)),
            )
        ),
    )


def _backward(
    gradient: Tensor,
    inputs: Tensor,
    weight: Tensor | None,
    statistics: tuple[Tensor | None, ...],
    operations: int,
    mask: tuple[bool, ...],
    channels: int,
) -> Cost:
    """Cost of the gradients of input, weight and (where `mask` has three) bias."""
    per_element = operations * mask[0] + 2 * mask[1] + sum(mask[2:])
    parameter_dtype = inputs.dtype if weight is None else weight.dtype
    return Cost(
        flops=vector_flops(inputs.dtype, per_element * inputs.elements),
        bytes_read=bytes_of(gradient, inputs, weight, *statistics),
        bytes_written=total(
            (
                bytes_for(inputs.elements * mask[0], inputs.dtype),
                bytes_for(channels * sum(mask[1:]), parameter_dtype),
            )
        ),
    )


def _rows(inputs: Tensor, normalized: tuple[int, ...] | None, weight: Tensor | None) -> int | None:
    """Rows that layer and RMS normalisation work on.

    torch before 2.1 does not record `normalized`: a weight has the same shape.
    """
    if normalized is None and weight is not None:
        normalized = weight.shape
    if not normalized or inputs.shape[-len(normalized) :] != normalized:
        return None
    return math.prod(inputs.shape[: -len(normalized)])


@cost_model("aten::native_layer_norm")
def native_layer_norm(call: OpCall) -> Cost | None:
    """(input, normalized_shape, weight, bias, eps) -> output, mean, rstd."""
    inputs = call.tensor(0)
    rows = None if inputs is None else _rows(inputs, call.integers(1), call.tensor(2))
    if inputs is None or rows is None:
        return None
    parameters = call.tensor(2), call.tensor(3)
    return _forward(inputs, parameters, _STATISTICS + _NORMALISE, 2 * rows)


@cost_model("aten::native_layer_norm_backward")
def native_layer_norm_backward(call: OpCall) -> Cost | None:
    """(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)."""
    gradient, inputs, mask = call.tensor(0), call.tensor(1), call.flags(7)
    rows = None if inputs is None else _rows(inputs, call.integers(2), call.tensor(5))
    if gradient is None or inputs is None or rows is None or mask is None or len(mask) != 3:
        return None
    statistics = call.tensor(3), call.tensor(4)
    channels = inputs.elements // rows if rows else 0
    return _backward(gradient, inputs, call.tensor(5), statistics, _BACKWARD, mask, channels)


@cost_model("aten::_fused_rms_norm")
def fused_rms_norm(call: OpCall) -> Cost | None:
    """(input, normalized_shape, weight, eps) -> output, rstd."""
    inputs = call.tensor(0)
    rows = None if inputs is None else _rows(inputs, call.integers(1), call.tensor(2))
    if inputs is None or rows is None:
        return None
    return _forward(inputs, (call.tensor(2),), _RMS_STATISTICS + 1, rows)


@cost_model("aten::_fused_rms_norm_backward")
def fused_rms_norm_backward(call: OpCall) -> Cost | None:
    """(grad_out, input, normalized_shape, rstd, weight, output_mask)."""
    gradient, inputs, mask = call.tensor(0), call.tensor(1), call.flags(5)
    rows = None if inputs is None else _rows(inputs, call.integers(2), call.tensor(4))
    if gradient is None or inputs is None or rows is None or mask is None or len(mask) != 2:
        return None
    channels = inputs.elements // rows if rows else 0
    statistics = (call.tensor(3),)
    return _backward(gradient, inputs, call.tensor(4), statistics, _RMS_BACKWARD, mask, channels)


@cost_model("aten::native_group_norm")
def native_group_norm(call: OpCall) -> Cost | None:
    """(input, weight, bias, N, C, HxW, group, eps) -> output, mean, rstd."""
    inputs, batch, groups = call.tensor(0), call.integer(3), call.integer(6)
    if inputs is None or batch is None or groups is None:
        return None
    parameters = call.tensor(1), call.tensor(2)
    return _forward(inputs, parameters, _STATISTICS + _NORMALISE, 2 * batch * groups)


@cost_model("aten::native_group_norm_backward")
def native_group_norm_backward(call: OpCall) -> Cost | None:
    """(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)."""
    gradient, inputs = call.tensor(0), call.tensor(1)
    channels, mask = call.integer(6), call.flags(9)
    if gradient is None or inputs is None or channels is None or mask is None or len(mask) != 3:
        return None
    statistics = call.tensor(2), call.tensor(3)
    return _backward(gradient, inputs, call.tensor(4), statistics, _BACKWARD, mask, channels)


def _batch_norm(call: OpCall, training: bool | None) -> Cost | None:
    inputs = call.tensor(0)
    if inputs is None or len(inputs.shape) < 2 or training is None:
        return None
    parameters = call.tensor(1), call.tensor(2)
    running = call.tensor(3), call.tensor(4)
    channels = inputs.shape[1]
    if not training:
        return _forward(inputs, parameters, _NORMALISE, 0, *running)
    # Batch statistics are saved for the backward; running ones are read and written.
    updated = 2 * channels if running[0] is not None else 0
    operations = _STATISTICS + _NORMALISE
    return _forward(inputs, parameters, operations, 2 * channels + updated, *running)


@cost_model(
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit",
    "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm",
)
def batch_norm(call: OpCall) -> Cost | None:
    """(input, weight, bias, running_mean, running_var, training, ...).

    `_native_batch_norm_legit` also exists without the running statistics: training stands at 3.
    """
    training = call.flag(3)
    return _batch_norm(call, call.flag(5) if training is None else training)


@cost_model("aten::_batch_norm_with_update")
def batch_norm_with_update(call: OpCall) -> Cost | None:
    """(input, weight, bias, running_mean, running_var, momentum, eps), training."""
    return _batch_norm(call, True)


@cost_model("aten::_batch_norm_no_update", "aten::_native_batch_norm_legit_no_training")
def batch_norm_no_update(call: OpCall) -> Cost | None:
    """(input, weight, bias, running_mean, running_var, momentum, eps), evaluation."""
    return _batch_norm(call, False)


def _batch_norm_gradients(
    call: OpCall, gradient: int, inputs: int, mask: tuple[bool, ...] | None, training: bool | None
) -> Cost | None:
    output_gradient, source = call.tensor(gradient), call.tensor(inputs)
    if output_gradient is None or source is None or len(source.shape) < 2:
        return None
    if mask is None or len(mask) != 3 or training is None:
        return None
    # Saved statistics in training, running ones otherwise.
    statistics = (call.tensor(5), call.tensor(6)) if training else (call.tensor(3), call.tensor(4))
    # With fixed statistics the input's gradient is dy * w * rstd.
    operations = _BACKWARD if training else 2
    return _backward(
        output_gradient, source, call.tensor(2), statistics, operations, mask, source.shape[1]
    )


@cost_model("aten::native_batch_norm_backward")
def native_batch_norm_backward(call: OpCall) -> Cost | None:
    """(grad_out, input, weight, running x2, saved x2, train, eps, output_mask)."""
    return _batch_norm_gradients(call, 0, 1, call.flags(9), call.flag(7))


@cost_model("aten::batch_norm_backward")
def batch_norm_backward(call: OpCall) -> Cost | None:
    """(grad_out, input, weight, running x2, saved x2, update, eps, output_mask, reserve)."""
    return _batch_norm_gradients(call, 0, 1, call.flags(9), call.flag(7))


@cost_model("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward")
def vendor_batch_norm_backward(call: OpCall) -> Cost | None:
    """(input, grad_output, weight, running x2, saved x2, epsilon, ...): all three gradients."""
    return _batch_norm_gradients(call, 1, 0, (True, True, True), True)


register_composites(
    "aten::layer_norm",
    "aten::rms_norm",
    "aten::group_norm",
    "aten::batch_norm",
    "aten::instance_norm",
    "aten::_batch_norm_impl_index",
    "aten::_batch_norm_impl_index_backward",
)
