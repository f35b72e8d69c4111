"""Recurrent layers: LSTM, GRU and plain RNN, whole (cuDNN, MIOpen, oneDNN) or cell by cell.

A layer multiplies each step's input [rows, I] by [I, G H] and its state [rows, H] by [H, G H],
where G is 4 gates for LSTM, 3 for GRU and 1 for RNN (Hochreiter and Schmidhuber 1997, Cho et al.
2014; torch.nn.LSTM's documentation): 2 rows G H (I + H) operations, summed over layers and
directions. Deeper layers take the outputs of all directions. With a projection the state is P wide
and 2 rows H P operations make it. torch.utils.flop_counter counts none of them. The matrices are
the weights.

Operations on the gates of a state element, a sigmoid being 4: LSTM 30 (12 additions of products
and biases, three sigmoids, two tanh, 4 products and sums), GRU 23, RNN 4. The gradients of the
gates of an LSTM element are 23, of a GRU element 16, from the formulas of torch's fused cells
(pytorch aten/src/ATen/native/cuda/RNN.cu).
"""

from dataclasses import dataclass
from typing import Final

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import (
    bytes_for,
    bytes_of,
    gemm_flops,
    total,
    vector_flops,
)
from gpuprof.roofline.cost_models.registry import cost_model, register_composites

# By the mode argument, cudnnRNNMode_t and miopenRNNMode_t: relu, tanh, LSTM, GRU.
_GATES: Final = {0: 1, 1: 1, 2: 4, 3: 3}
_GATE_OPERATIONS: Final = {0: 4, 1: 4, 2: 30, 3: 23}
_RESERVE = "what the forward keeps for the backward is not counted: its size is not in the trace"
_GRADIENTS_OF_GATES = "operations on the gradients of the gates are not counted"


@dataclass(frozen=True)
class _Where:
    """Positions of arguments. `projection` is None where the library has none."""

    state: int
    mode: int
    projection: int | None
    layers: int
    bidirectional: int
    output_mask: int | None = None


# pytorch aten/src/ATen/native/native_functions.yaml (2.13): (input, weights, ...).
_FORWARD: Final = {
    "aten::_cudnn_rnn": _Where(4, 6, 8, 9, 13),
    "aten::miopen_rnn": _Where(3, 5, None, 7, 11),
}
_BACKWARD: Final = {
    "aten::_cudnn_rnn_backward": _Where(4, 10, 12, 13, 17, 21),
    "aten::miopen_rnn_backward": _Where(4, 10, None, 12, 16, 20),
}


@dataclass(frozen=True)
class _Network:
    rows: int
    inputs: Tensor
    products: int
    # Elements of the matrices, and of these with the biases.
    weights: int
    parameters: int
    outputs: int
    gate_operations: int


def _network(call: OpCall, where: _Where) -> _Network | None:
    """Sizes of a call, `hidden_size` standing behind the mode."""
    inputs, mode = call.tensor(0), call.integer(where.mode)
    hidden, layers = call.integer(where.mode + 1), call.integer(where.layers)
    bidirectional = call.flag(where.bidirectional)
    projection = 0 if where.projection is None else call.integer(where.projection)
    if inputs is None or not inputs.shape or hidden is None or layers is None:
        return None
    if mode not in _GATES or bidirectional is None or projection is None:
        return None
    gates, directions = _GATES[mode] * hidden, 1 + bidirectional
    state = projection or hidden
    width, weights, parameters = inputs.shape[-1], 0, 0
    for _ in range(layers):
        of_layer = gates * (width + state) + projection * hidden
        weights += directions * of_layer
        parameters += directions * (of_layer + 2 * gates)
        width = directions * state
    rows = inputs.elements // max(inputs.shape[-1], 1)
    return _Network(
        rows=rows,
        inputs=inputs,
        products=2 * rows * weights,
        weights=weights,
        parameters=parameters,
        outputs=rows * width,
        gate_operations=_GATE_OPERATIONS[mode] * rows * hidden * directions * layers,
    )


def _parameter_bytes(call: OpCall, network: _Network) -> int | None:
    """Of the weights as listed; with two biases where the list was too long to be recorded."""
    listed = call.tensors(1)
    elements = sum(tensor.elements for tensor in listed or ()) or network.parameters
    return bytes_for(elements, network.inputs.dtype)


@cost_model(*_FORWARD)
def forward(call: OpCall) -> Cost | None:
    """All layers and steps: reads inputs, parameters and states; writes outputs and states."""
    where = _FORWARD[call.name]
    network = _network(call, where)
    if network is None:
        return None
    dtype = network.inputs.dtype
    products = gemm_flops(call, dtype, network.products)
    on_gates = vector_flops(dtype, network.gate_operations)
    states = bytes_of(call.tensor(where.state), call.tensor(where.state + 1))
    return Cost(
        flops=None if products is None or on_gates is None else products + on_gates,
        bytes_read=total((network.inputs.bytes, _parameter_bytes(call, network), states)),
        bytes_written=total((bytes_for(network.outputs, dtype), states)),
        assumptions=(_RESERVE,),
        weight_bytes=bytes_for(network.weights, dtype),
        key_value_bytes=0,
    )


@cost_model(*_BACKWARD)
def backward(call: OpCall) -> Cost | None:
    """As many products as the forward for the data, and again for the weights if asked for.

    Reads what the forward read and wrote and the gradients of the latter; writes those of the
    former.
    """
    where = _BACKWARD[call.name]
    network = _network(call, where)
    mask = None if where.output_mask is None else call.flags(where.output_mask)
    if network is None or mask is None or len(mask) != 4:
        return None
    dtype = network.inputs.dtype
    parameters = _parameter_bytes(call, network)
    states = bytes_of(call.tensor(where.state), call.tensor(where.state + 1))
    saved = bytes_of(*(call.tensor(where.state + offset) for offset in range(2, 6)))
    return Cost(
        flops=gemm_flops(call, dtype, network.products * (1 + mask[3])),
        bytes_read=total((network.inputs.bytes, parameters, states, saved)),
        bytes_written=total((network.inputs.bytes, states, parameters if mask[3] else 0)),
        assumptions=(_RESERVE, _GRADIENTS_OF_GATES),
        weight_bytes=bytes_for(network.weights, dtype),
        key_value_bytes=0,
    )


def _mkldnn(call: OpCall, mode: int) -> tuple[int, int, Tensor] | None:
    """Products, operations on gates, and the input of a layer of one direction."""
    inputs, of_input, of_state = (call.tensor(position) for position in range(3))
    kind, hidden = call.integer(mode), call.integer(mode + 1)
    if inputs is None or of_input is None or of_state is None or not inputs.shape:
        return None
    if kind not in _GATES or hidden is None:
        return None
    rows = inputs.elements // max(inputs.shape[-1], 1)
    products = 2 * rows * (of_input.elements + of_state.elements)
    return products, _GATE_OPERATIONS[kind] * rows * hidden, inputs


@cost_model("aten::mkldnn_rnn_layer")
def mkldnn_rnn_layer(call: OpCall) -> Cost | None:
    """(input, two weights, two biases, hx, cx, reverse, batch_sizes, mode, hidden_size, ...)."""
    sizes = _mkldnn(call, 9)
    if sizes is None:
        return None
    products, on_gates, inputs = sizes
    of_products = gemm_flops(call, inputs.dtype, products)
    of_gates = vector_flops(inputs.dtype, on_gates)
    hidden = call.integer(10) or 0
    rows = inputs.elements // max(inputs.shape[-1], 1)
    states = bytes_of(call.tensor(5), call.tensor(6))
    return Cost(
        flops=None if of_products is None or of_gates is None else of_products + of_gates,
        bytes_read=bytes_of(*(call.tensor(position) for position in range(7))),
        bytes_written=total((bytes_for(rows * hidden, inputs.dtype), states)),
        assumptions=(_RESERVE,),
        weight_bytes=bytes_of(call.tensor(1), call.tensor(2)),
        key_value_bytes=0,
    )


@cost_model("aten::mkldnn_rnn_layer_backward")
def mkldnn_rnn_layer_backward(call: OpCall) -> Cost | None:
    """(what the forward read and wrote, their gradients, reverse, mode, hidden_size, ...)."""
    sizes = _mkldnn(call, 14)
    if sizes is None:
        return None
    products, _, inputs = sizes
    return Cost(
        flops=gemm_flops(call, inputs.dtype, 2 * products),
        bytes_read=bytes_of(*(call.tensor(position) for position in range(13))),
        bytes_written=bytes_of(*(call.tensor(position) for position in range(7))),
        assumptions=(_RESERVE, _GRADIENTS_OF_GATES),
        weight_bytes=bytes_of(call.tensor(1), call.tensor(2)),
        key_value_bytes=0,
    )


def _cell(
    operations: int, read: tuple[Tensor | None, ...], state: Tensor | None, written: int
) -> Cost | None:
    """A fused cell that writes `written` values for each of the state's elements."""
    if state is None:
        return None
    return Cost(
        flops=vector_flops(state.dtype, operations * state.elements),
        bytes_read=bytes_of(*read),
        bytes_written=bytes_for(written * state.elements, state.dtype),
    )


@cost_model("aten::_thnn_fused_lstm_cell")
def lstm_cell(call: OpCall) -> Cost | None:
    """(input gates [B, 4 H], hidden gates, cx [B, H], biases): hy, cy, and 4 gates to keep."""
    return _cell(30, tuple(map(call.tensor, range(5))), call.tensor(2), 6)


@cost_model("aten::_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(call: OpCall) -> Cost | None:
    """(grad_hy, grad_cy, cx, cy, gates): gradients of the gates and of cx."""
    return _cell(23, tuple(map(call.tensor, range(5))), call.tensor(2), 5)


@cost_model("aten::_thnn_fused_gru_cell")
def gru_cell(call: OpCall) -> Cost | None:
    """(input gates [B, 3 H], hidden gates, hx [B, H], biases): hy, and 5 values to keep."""
    return _cell(23, tuple(map(call.tensor, range(5))), call.tensor(2), 6)


@cost_model("aten::_thnn_fused_gru_cell_backward")
def gru_cell_backward(call: OpCall) -> Cost | None:
    """(grad_hy [B, H], kept [B, 5 H], has_bias): gradients of both gates and of hx."""
    return _cell(16, (call.tensor(0), call.tensor(1)), call.tensor(0), 7)


register_composites(
    "aten::lstm",
    "aten::gru",
    "aten::rnn_tanh",
    "aten::rnn_relu",
    "aten::lstm_cell",
    "aten::gru_cell",
    "aten::rnn_tanh_cell",
    "aten::rnn_relu_cell",
    "aten::_thnn_fused_lstm_cell_backward",
    "aten::_thnn_differentiable_lstm_cell_backward",
    "aten::_thnn_differentiable_gru_cell_backward",
)
