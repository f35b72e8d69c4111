"""Softmax and log-softmax along one axis.

Operations an element, an exponential or division as one: forward 5 (maximum, subtract, exp, sum,
divide or subtract), backward 4 (product or exp, sum, product, subtract).
Source: the safe softmax of Milakov and Gimelshein 2018 (arXiv 1805.02867), written out.
"""

from gpuprof.roofline.cost_models.call import OpCall
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, vector_flops
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.dtypes import named

FORWARD_OPERATIONS = 5
BACKWARD_OPERATIONS = 4


@cost_model("aten::_softmax", "aten::_log_softmax")
def softmax(call: OpCall) -> Cost | None:
    """(self, dim, half_to_float): half_to_float writes float32."""
    tensor, widens = call.tensor(0), call.flag(2)
    if tensor is None:
        return None
    output = named("float32") if widens else tensor.dtype
    return Cost(
        flops=vector_flops(tensor.dtype, FORWARD_OPERATIONS * tensor.elements),
        bytes_read=tensor.bytes,
        bytes_written=None if widens is None else bytes_for(tensor.elements, output),
    )


@cost_model("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def softmax_backward(call: OpCall) -> Cost | None:
    """(grad_output, output, dim, input_dtype)."""
    gradient, output = call.tensor(0), call.tensor(1)
    if gradient is None or output is None:
        return None
    # input_dtype is a number that stands for a dtype; where unrecorded, that of the output.
    dtype = call.dtype(3) or output.dtype
    return Cost(
        flops=vector_flops(output.dtype, BACKWARD_OPERATIONS * output.elements),
        bytes_read=bytes_of(gradient, output),
        bytes_written=bytes_for(output.elements, dtype),
    )


register_composites(
    "aten::softmax",
    "aten::log_softmax",
    "aten::special_softmax",
    "aten::special_log_softmax",
    "aten::_safe_softmax",
)
