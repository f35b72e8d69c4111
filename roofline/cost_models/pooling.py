"""Pooling and interpolation.

An operation for each element of a pooling window; interpolation counts its weighted sum.
Source: the definitions of torch.nn.MaxPool2d, AvgPool2d, AdaptiveAvgPool2d and Upsample.
"""

import math
from collections.abc import Iterator

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, total, vector_flops
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.dtypes import named


def _per_axis(values: tuple[int, ...] | None, axes: int) -> tuple[int, ...] | None:
    if values is None:
        return None
    return values * axes if len(values) == 1 else values if len(values) == axes else None


def _pooled(
    inputs: Tensor,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil: bool,
) -> Iterator[int]:
    """Sizes of the output (formula: documentation of torch.nn.MaxPool2d)."""
    axes = len(window)
    rows = zip(inputs.shape[-axes:], window, stride, padding, dilation, strict=True)
    for size, kernel, step, pad, spread in rows:
        room = size + 2 * pad - spread * (kernel - 1) - 1
        outputs = (room + (step - 1 if ceil else 0)) // step + 1
        # A window must start inside the input or its left padding.
        yield outputs - 1 if ceil and (outputs - 1) * step >= size + pad else outputs


def _pool(
    call: OpCall, axes: int, *, dilation: int | None, ceil: int, with_indices: bool
) -> Cost | None:
    """(self, kernel_size, stride, padding, ...); an empty stride means the kernel's size."""
    inputs = call.tensor(0)
    window = _per_axis(call.integers(1), axes)
    stride = window if call.integers(2) == () else _per_axis(call.integers(2), axes)
    padding = _per_axis(call.integers(3), axes)
    spread = (1,) * axes if dilation is None else _per_axis(call.integers(dilation), axes)
    rounds_up = call.flag(ceil)
    if inputs is None or window is None or stride is None or padding is None or spread is None:
        return None
    if rounds_up is None or len(inputs.shape) < axes or min(stride) < 1:
        return None
    sizes = tuple(_pooled(inputs, window, stride, padding, spread, rounds_up))
    outputs = math.prod(inputs.shape[:-axes]) * math.prod(sizes)
    indices = bytes_for(outputs, named("int64")) if with_indices else 0
    return Cost(
        flops=vector_flops(inputs.dtype, outputs * math.prod(window)),
        bytes_read=inputs.bytes,
        bytes_written=total((bytes_for(outputs, inputs.dtype), indices)),
    )


@cost_model("aten::max_pool2d_with_indices")
def max_pool2d(call: OpCall) -> Cost | None:
    """(self, kernel_size, stride, padding, dilation, ceil_mode) -> output, indices."""
    return _pool(call, 2, dilation=4, ceil=5, with_indices=True)


@cost_model("aten::max_pool3d_with_indices")
def max_pool3d(call: OpCall) -> Cost | None:
    """As max_pool2d_with_indices."""
    return _pool(call, 3, dilation=4, ceil=5, with_indices=True)


@cost_model("aten::avg_pool2d")
def avg_pool2d(call: OpCall) -> Cost | None:
    """(self, kernel_size, stride, padding, ceil_mode, ...)."""
    return _pool(call, 2, dilation=None, ceil=4, with_indices=False)


@cost_model("aten::avg_pool3d")
def avg_pool3d(call: OpCall) -> Cost | None:
    """As avg_pool2d."""
    return _pool(call, 3, dilation=None, ceil=4, with_indices=False)


@cost_model("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d")
def adaptive_average_pool(call: OpCall) -> Cost | None:
    """(self, output_size): each input element is added once where sizes divide."""
    inputs, sizes = call.tensor(0), call.integers(1)
    if inputs is None or not sizes:
        return None
    outputs = math.prod(inputs.shape[: -len(sizes)]) * math.prod(sizes)
    return Cost(
        flops=vector_flops(inputs.dtype, inputs.elements),
        bytes_read=inputs.bytes,
        bytes_written=bytes_for(outputs, inputs.dtype),
    )


@cost_model(
    "aten::max_pool2d_with_indices_backward",
    "aten::max_pool3d_with_indices_backward",
)
def max_pool_backward(call: OpCall) -> Cost | None:
    """(grad_output, self, ..., indices): adds each gradient where its maximum stood."""
    gradient, inputs, indices = call.tensor(0), call.tensor(1), call.tensor(7)
    if gradient is None or inputs is None:
        return None
    return Cost(
        flops=vector_flops(inputs.dtype, gradient.elements),
        bytes_read=bytes_of(gradient, indices),
        bytes_written=bytes_for(inputs.elements, inputs.dtype),
    )


@cost_model("aten::avg_pool2d_backward", "aten::avg_pool3d_backward")
def average_pool_backward(call: OpCall) -> Cost | None:
    """(grad_output, self, kernel_size, ...): each gradient goes to its window."""
    gradient, inputs = call.tensor(0), call.tensor(1)
    axes = 2 if call.name == "aten::avg_pool2d_backward" else 3
    window = _per_axis(call.integers(2), axes)
    if gradient is None or inputs is None or window is None:
        return None
    return Cost(
        flops=vector_flops(inputs.dtype, gradient.elements * math.prod(window)),
        bytes_read=gradient.bytes,
        bytes_written=bytes_for(inputs.elements, inputs.dtype),
    )


@cost_model("aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward")
def adaptive_average_pool_backward(call: OpCall) -> Cost | None:
    """(grad_output, self)."""
    gradient, inputs = call.tensor(0), call.tensor(1)
    if gradient is None or inputs is None:
        return None
    return Cost(
        flops=vector_flops(inputs.dtype, inputs.elements),
        bytes_read=gradient.bytes,
        bytes_written=bytes_for(inputs.elements, inputs.dtype),
    )


# Operations an output element: the weighted sum of 1, 2, 4 or 8 neighbours.
_INTERPOLATIONS = {
    "nearest1d": (1, 0),
    "nearest2d": (2, 0),
    "nearest3d": (3, 0),
    "_nearest_exact2d": (2, 0),
    "linear1d": (1, 3),
    "bilinear2d": (2, 9),
    "trilinear3d": (3, 21),
}


def _register_interpolations() -> None:
    for kind, (axes, operations) in _INTERPOLATIONS.items():
        prefix = "aten::_upsample" if kind.startswith("_") else "aten::upsample_"

        @cost_model(prefix + kind)
        def _forward(call: OpCall, axes: int = axes, operations: int = operations) -> Cost | None:
            # (self, output_size, ...)
            inputs, sizes = call.tensor(0), call.integers(1)
            if inputs is None or sizes is None or len(sizes) != axes:
                return None
            outputs = math.prod(inputs.shape[:-axes]) * math.prod(sizes)
            return Cost(
                flops=vector_flops(inputs.dtype, operations * outputs),
                bytes_read=inputs.bytes,
                bytes_written=bytes_for(outputs, inputs.dtype),
            )

        @cost_model(f"{prefix}{kind}_backward")
        def _backward(call: OpCall, operations: int = operations) -> Cost | None:
            # (grad_output, output_size, input_size, ...): adds to the neighbours' gradients.
            gradient, sizes = call.tensor(0), call.integers(2)
            if gradient is None or sizes is None:
                return None
            return Cost(
                flops=vector_flops(gradient.dtype, max(operations, 1) * gradient.elements),
                bytes_read=gradient.bytes,
                bytes_written=bytes_for(math.prod(sizes), gradient.dtype),
            )


_register_interpolations()

register_composites(
    "aten::max_pool1d",
    "aten::max_pool2d",
    "aten::max_pool3d",
    "aten::avg_pool1d",
    "aten::adaptive_avg_pool1d",
    "aten::adaptive_avg_pool2d",
    "aten::adaptive_avg_pool3d",
)
