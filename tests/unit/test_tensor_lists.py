"""Lists of tensors that a trace leaves out, kept by `gpuprof run`."""

import json
from pathlib import Path
from tempfile import mkdtemp

import polars as pl
import pytest
import torch

from gpuprof.collectors import kineto
from gpuprof.collectors.live.torch_trace import TorchTrace
from gpuprof.collectors.recorded_lists import beside
from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import OpCall, parse_call


def recorded_calls(tmp_path: Path, name: str, program: object) -> list[OpCall]:
    trace = TorchTrace(Path(mkdtemp(dir=tmp_path), "trace.json"), steps=None)
    trace.start()
    assert callable(program)
    program()
    trace.stop()
    path = trace.export()
    rows = kineto.read(path, advise=False, recorded=True).ops.filter(pl.col("name") == name)
    columns = ("input_dims", "input_types", "input_strides", "concrete_inputs")
    calls = [parse_call(name, *row) for row in rows.select(columns).iter_rows()]
    return [call for call in calls if call is not None]


def test_a_long_list_has_all_its_tensors_with_their_types(tmp_path: Path) -> None:
    tensors = [torch.zeros(size + 1, 3, dtype=torch.bfloat16) for size in range(40)]
    (call,) = recorded_calls(tmp_path, "aten::cat", lambda: torch.cat(tensors))
    listed = call.tensors(0)
    assert listed is not None
    assert [(each.shape, each.strides) for each in listed] == [
        (tuple(each.shape), each.stride()) for each in tensors
    ]
    cost = cost_of(call)
    moved = sum(each.numel() * each.element_size() for each in tensors)
    assert cost is not None
    assert (cost.bytes_read, cost.bytes_written, cost.assumptions) == (moved, moved, ())


def test_a_list_of_several_types_moves_each_in_its_own(tmp_path: Path) -> None:
    tensors = [torch.zeros(5, dtype=torch.float16), torch.zeros(7, dtype=torch.float32)]
    (call,) = recorded_calls(tmp_path, "aten::cat", lambda: torch.cat(tensors))
    cost = cost_of(call)
    assert cost is not None
    result = torch.cat(tensors)
    assert cost.bytes_read == 5 * 2 + 7 * 4
    assert cost.bytes_written == result.numel() * result.element_size()


@pytest.mark.parametrize("fused", [True, False])
def test_each_group_of_an_optimizer_is_counted_for_itself(tmp_path: Path, fused: bool) -> None:
    decayed = [torch.nn.Parameter(torch.zeros(8, 8)) for _ in range(35)]
    plain = [torch.nn.Parameter(torch.zeros(8)) for _ in range(33)]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": plain}], weight_decay=0.1, fused=fused, foreach=not fused
    )
    for parameter in (*decayed, *plain):
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    name = "aten::_fused_adamw_" if fused else "aten::_foreach_lerp_"
    costs = [cost_of(call) for call in recorded_calls(tmp_path, name, optimizer.step)]
    # A fused step reads parameter, gradient and two moments and writes all but the gradient;
    # lerp_ reads the first moment and the gradient and writes the moment.
    read, written = (4, 3) if fused else (2, 1)
    elements = [35 * 64, 33 * 8]
    assert [cost and cost.bytes_read for cost in costs] == [4 * read * each for each in elements]
    assert [cost and cost.bytes_written for cost in costs] == [
        4 * written * each for each in elements
    ]


def test_lists_that_fit_no_operator_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    op = {
        "ph": "X", "cat": "cpu_op", "name": "aten::cat", "pid": 1, "tid": 1, "ts": 1, "dur": 2,
        "args": {"External id": 3, "Input Dims": [[], []], "Input type": ["TensorList", "Scalar"]},
    }  # fmt: skip
    path.write_text(json.dumps({"traceEvents": [op]}))
    alone = kineto.read(path, advise=False).ops
    for arguments in ([None], [[[[2]], [[1]], ["float32"]], None], [None, [[[2]], [[1]], ["x"]]]):
        beside(path).write_text(json.dumps({"by_external_id": {"3": arguments}}))
        assert kineto.read(path, advise=False, recorded=True).ops.equals(alone)


def multiplied(tmp_path: Path, program: object, *, allocations: bool = True) -> list[int | None]:
    trace = TorchTrace(
        Path(mkdtemp(dir=tmp_path), "trace.json"), steps=None, allocations=allocations
    )
    trace.start()
    assert callable(program)
    program()
    trace.stop()
    rows = kineto.read(trace.export(), advise=False, recorded=True).ops
    products = rows.filter(pl.col("name").is_in(["aten::mm", "aten::addmm"])).sort("start_ns")
    others = rows.filter(~pl.col("name").is_in(PRODUCTS))["multiplied"]
    assert others.null_count() == len(others)
    return products["multiplied"].to_list()


PRODUCTS = ("aten::mm", "aten::addmm", "aten::linear", "aten::matmul")


def test_products_of_one_tensor_are_told_from_those_of_others(tmp_path: Path) -> None:
    query, key, value = (torch.nn.Linear(8, 8, bias=bias) for bias in (True, False, False))
    x, y = torch.zeros(2, 3, 8), torch.zeros(2, 3, 8)

    def attention() -> None:
        # A view of a result takes nothing of x.
        query(x).view(2, 3, 2, 4).transpose(1, 2)
        key(x)
        value(x)

    first, second, third = multiplied(tmp_path, attention)
    assert first is not None
    assert first == second == third

    def two_towers() -> None:
        query(x)
        key(y)
        # What the product before wrote has the same shape, too.
        value(key(x))

    numbers = multiplied(tmp_path, two_towers)
    assert numbers[0] == numbers[2]
    assert len(set(numbers)) == 3


@pytest.mark.parametrize("grad", [True, False])
def test_slices_and_what_is_written_between_are_other_tensors(tmp_path: Path, grad: bool) -> None:
    query, key = (torch.nn.Linear(8, 8, bias=False, dtype=torch.float64) for _ in range(2))
    both = torch.zeros(4, 16, dtype=torch.float64)

    def halves() -> None:
        with torch.set_grad_enabled(grad):
            query(both[:, :8])
            key(both[:, 8:])
            for half, weight in zip(both.chunk(2, -1), (query, key), strict=True):
                weight(half)

    numbers = multiplied(tmp_path, halves)
    assert None not in numbers
    assert len(set(numbers)) == 4
    # Without allocations storages have no numbers.
    assert multiplied(tmp_path, halves, allocations=False) == [None] * 4

    x = torch.zeros(4, 8, dtype=torch.float64)

    def in_place() -> None:
        with torch.no_grad():
            query(x)
            x.add_(1)
            key(x)

    one, other = multiplied(tmp_path, in_place)
    assert one != other
