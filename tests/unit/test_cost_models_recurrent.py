"""Recurrent layers: positions by torch's schemas, products by the matrices that torch holds."""

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from gpuprof.collectors import kineto
from gpuprof.roofline.cost_models import cost_of, recurrent
from gpuprof.roofline.cost_models.call import (
    Argument,
    OpCall,
    Scalar,
    Tensor,
    TensorList,
    parse_call,
)
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.dtypes import named


def half(*shape: int) -> Tensor:
    return Tensor(shape, named("float16"))


def scalars(*texts: object) -> tuple[Scalar, ...]:
    return tuple(Scalar(str(text)) for text in texts)


def cost(name: str, *arguments: Argument) -> Cost:
    result = cost_of(OpCall(name, arguments))
    assert result is not None
    return result


def argument_names(op: str) -> list[str]:
    (schema,) = (s for s in torch._C._jit_get_all_schemas() if s.name == op and not s.overload_name)
    return [argument.name for argument in schema.arguments]


@pytest.mark.parametrize("op", [*recurrent._FORWARD, *recurrent._BACKWARD])
def test_positions_are_those_of_torchs_schemas(op: str) -> None:
    where, names = (recurrent._FORWARD | recurrent._BACKWARD)[op], argument_names(op)
    assert names[where.state : where.state + 2] == ["hx", "cx"]
    assert names[where.mode : where.mode + 2] == ["mode", "hidden_size"]
    assert names[where.layers] == "num_layers"
    assert names[where.bidirectional] == "bidirectional"
    assert where.projection is None or names[where.projection] == "proj_size"
    if where.output_mask is not None:
        assert names[where.output_mask] == "output_mask"
        saved = names[where.state + 2 : where.state + 6]
        assert saved == ["output", "grad_output", "grad_hy", "grad_cy"]


def weights(module: torch.nn.RNNBase) -> TensorList:
    return TensorList(tuple(Tensor(tuple(w.shape), None) for w in module.parameters()))


def products_by_hand(module: torch.nn.RNNBase, rows: int) -> int:
    """Each row meets each matrix once."""
    matrices = (p for name, p in module.named_parameters() if name.startswith("weight"))
    return sum(2 * rows * matrix.numel() for matrix in matrices)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("projection", [0, 8])
def test_an_lstm_multiplies_each_row_by_each_matrix(bidirectional: bool, projection: int) -> None:
    module = torch.nn.LSTM(16, 32, num_layers=3, bidirectional=bidirectional, proj_size=projection)
    directions, width = 1 + bidirectional, projection or 32
    hx, cx = half(3 * directions, 4, width), half(3 * directions, 4, 32)
    result = cost(
        *("aten::_cudnn_rnn", half(10, 4, 16), weights(module), Scalar("4"), None, hx, cx),
        *scalars(2, 32, projection, 3, "False", "0.", "True", bidirectional, "[]"),
    )
    parameters = sum(p.numel() for p in module.parameters())
    assert result.matmul_flops() == products_by_hand(module, 40)
    states = hx.elements + cx.elements
    assert result.bytes_read == 2 * (640 + parameters + states)
    assert result.bytes_written == 2 * (40 * directions * width + states)
    # The list may be left out for its length.
    empty = TensorList(())
    short = cost(
        *("aten::_cudnn_rnn", half(10, 4, 16), empty, Scalar("4"), None, hx, cx),
        *scalars(2, 32, projection, 3, "False", "0.", "True", bidirectional, "[]"),
    )
    assert short == result


def test_packed_sequences_count_their_rows() -> None:
    module = torch.nn.GRU(16, 32)
    result = cost(
        *("aten::_cudnn_rnn", half(25, 16), weights(module), Scalar("4"), None, half(1, 4, 32)),
        *(None, *scalars(3, 32, 0, 1, "False", "0.", "True", "False", "[4, 4, 4, 4, 4, 3, 2]")),
    )
    assert result.matmul_flops() == products_by_hand(module, 25)


@pytest.mark.parametrize(("mask", "times"), [("true", 2), ("false", 1)])
def test_a_backward_repeats_the_products_for_data_and_for_weights(mask: str, times: int) -> None:
    module = torch.nn.GRU(16, 32, num_layers=2)
    output, hx = half(10, 4, 32), half(2, 4, 32)
    result = cost(
        *("aten::_cudnn_rnn_backward", half(10, 4, 16), weights(module), Scalar("4"), half(9999)),
        *(hx, None, output, output, None, None),
        *scalars(3, 32, 0, 2, "False", "0.", "True", "False", "[]"),
        *(None, half(123), Scalar(f"[true, false, false, {mask}]")),
    )
    assert result.matmul_flops() == times * products_by_hand(module, 40)
    parameters = sum(p.numel() for p in module.parameters())
    written = 640 + hx.elements + (parameters if times == 2 else 0)
    assert result.bytes_written == 2 * written
    assert result.bytes_read == 2 * (640 + parameters + hx.elements + 2 * output.elements)


def test_fused_cells() -> None:
    gates, state = half(4, 128), half(4, 32)
    forward = cost("aten::_thnn_fused_lstm_cell", gates, gates, state, half(128), half(128))
    assert forward.flops is not None
    assert forward.flops[0].count == 30 * 128
    assert forward.bytes_read == 2 * (512 + 512 + 128 + 256)
    assert forward.bytes_written == 2 * 6 * 128
    backward = cost("aten::_thnn_fused_gru_cell_backward", state, half(4, 160), Scalar("True"))
    assert backward.bytes_read == 2 * 6 * 128
    assert backward.bytes_written == 2 * 7 * 128


def test_the_layers_of_a_recorded_lstm_add_up(tmp_path: Path) -> None:
    module = torch.nn.LSTM(16, 32, num_layers=2, bidirectional=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        module(torch.randn(10, 4, 16))[0].sum().backward()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    ops = kineto.read(tmp_path / "trace.json").ops
    counted = {"aten::mkldnn_rnn_layer": 0, "aten::mkldnn_rnn_layer_backward": 0}
    columns = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")
    for row in ops.select(columns).iter_rows():
        if row[0] in counted:
            call = parse_call(*row)
            assert call is not None
            found = cost_of(call)
            assert found is not None
            counted[row[0]] += found.matmul_flops() or 0
            assert found.bytes_moved() is not None
    if not any(counted.values()):
        pytest.skip("this torch runs LSTM without oneDNN")
    expected = products_by_hand(module, 40)
    assert list(counted.values()) == [expected, 2 * expected]


def test_what_is_not_understood_has_no_cost() -> None:
    assert cost_of(OpCall("aten::_cudnn_rnn", (half(10, 4, 16), TensorList(())))) is None
    assert cost_of(OpCall("aten::_thnn_fused_lstm_cell", (Scalar("1"),))) is None
    assert cost_of(OpCall("aten::mkldnn_rnn_layer", (half(10, 4, 16),))) is None
