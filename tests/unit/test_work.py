"""Which operator owns a kernel, and that its cost is counted once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import ParameterGroup
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models import cost_model, registry
from gpuprof.roofline.cost_models.call import MathMode, OpCall
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.cost_models.kernel_launch import KernelLaunch
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.work import Work, find_work

FLOPS = 2 * 64 * 32 * 16


def work_of(capture: Capture) -> Work:
    return find_work(attribute(capture), MathMode())


def owners(work: Work) -> list[str | None]:
    """The owner's name of each kernel."""
    return [
        None if signature is None else work.signatures[signature].name
        for signature in work.kernels["signature"]
    ]


def total_flops(work: Work) -> int:
    calls = work.kernels.select("signature", "owner_id").drop_nulls().unique()
    costs = (work.signatures[signature].cost for signature in calls["signature"])
    return sum(cost.matmul_flops() or 0 for cost in costs if cost is not None)


def test_a_composite_operator_leaves_its_kernels_to_those_inside(build: CaptureBuilder) -> None:
    linear = build.op("aten::linear", 0, 100)
    matmul = build.op("aten::matmul", 10, 90, parent_id=linear)
    build.mm(20, 80, parent_id=matmul)
    build.kernel(30, 1000, 1040)
    work = work_of(build.build())
    assert owners(work) == ["aten::mm"]
    assert total_flops(work) == FLOPS


def test_an_operator_inside_a_modelled_one_is_its_work(build: CaptureBuilder) -> None:
    outer = build.mm(0, 100)
    build.op("mylib::workspace", 10, 20, parent_id=outer)
    build.kernel(15, 1000, 1010, "init")
    build.kernel(50, 1010, 1050, "gemm")
    work = work_of(build.build())
    assert owners(work) == ["aten::mm", "aten::mm"]
    assert work.kernels["compute_kernels"].to_list() == [2, 2]
    assert total_flops(work) == FLOPS


def test_a_view_inside_an_operator_owns_nothing(build: CaptureBuilder) -> None:
    outer = build.mm(0, 100)
    build.op("aten::view", 10, 20, parent_id=outer, dims="[[64, 32]]", types='["float"]')
    build.kernel(15, 1000, 1010)
    assert owners(work_of(build.build())) == ["aten::mm"]


def test_an_operator_that_nothing_models_keeps_its_kernels(build: CaptureBuilder) -> None:
    outer = build.op("mylib::outer", 0, 100)
    build.op("mylib::inner", 10, 20, parent_id=outer)
    build.kernel(15, 1000, 1010)
    work = work_of(build.build())
    assert owners(work) == ["mylib::inner"]
    (signature,) = work.signatures
    assert (signature.cost, signature.reason) == (None, "no cost model for mylib::inner")


def test_a_kernel_without_an_operator_has_no_owner(build: CaptureBuilder) -> None:
    build.mm(0, 10)
    build.kernel(500, 1000, 1010)
    work = work_of(build.build())
    assert owners(work) == [None]
    assert work.kernels["owner_id"].to_list() == [None]
    assert work.kernels["phase"].to_list() == [""]


def test_calls_with_equal_arguments_share_a_signature(build: CaptureBuilder) -> None:
    for start, rows in ((0, 64), (100, 64), (200, 65)):
        build.mm(start, start + 50, rows)
        build.kernel(start + 10, 1000 + start, 1010 + start)
    work = work_of(build.build())
    assert work.kernels["signature"].to_list()[:2] == [work.kernels["signature"][0]] * 2
    assert len(work.signatures) == 2
    assert "[[64, 32], [32, 16]]" in work.signatures[0].detail


def test_without_shapes_the_reason_says_how_to_get_them(build: CaptureBuilder) -> None:
    build.op("aten::mm", 0, 50)
    build.kernel(10, 1000, 1010)
    (signature,) = work_of(build.build()).signatures
    assert (signature.cost, signature.detail) == (None, "")
    assert "record_shapes=True" in signature.reason


def test_arguments_that_a_model_does_not_cover_are_said_so(build: CaptureBuilder) -> None:
    build.op("aten::mm", 0, 50, dims="[[64, 32], []]", types='["float", ""]')
    build.kernel(10, 1000, 1010)
    (signature,) = work_of(build.build()).signatures
    assert signature.cost is None
    assert signature.reason == "the cost model of aten::mm does not cover this call"


def test_only_profiled_steps_count_where_there_are_any(build: CaptureBuilder) -> None:
    build.step("timed", 0, 100)
    build.step("profiled", 100, 200)
    build.step("profiled", 200, 300)
    for start in (0, 100, 200, 300):
        build.mm(start, start + 50)
        build.kernel(start + 10, 1000 + start, 1010 + start)
    work = work_of(build.build())
    assert work.steps == 2
    assert work.kernels["kernel_row"].to_list() == [1, 2]


def test_without_profiled_steps_all_work_is_one_step(build: CaptureBuilder) -> None:
    for start in (0, 100):
        build.mm(start, start + 50)
        build.kernel(start + 10, 1000 + start, 1010 + start)
    work = work_of(build.build())
    assert (work.steps, work.kernels.height) == (1, 2)


def test_a_capture_without_work_has_none(build: CaptureBuilder) -> None:
    work = work_of(build.build())
    assert (work.kernels.height, work.signatures, work.steps) == (0, (), 1)


def test_a_model_of_the_program_is_used(
    build: CaptureBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(registry._models, "mylib::fused", raising=False)

    @cost_model("mylib::fused")
    def fused(call: object) -> Cost:
        return Cost(flops=(Flops("matmul", "bf16", 99),), bytes_read=1, bytes_written=2)

    try:
        build.op("mylib::fused", 0, 50, dims="[]", types="[]")
        build.kernel(10, 1000, 1010)
        assert total_flops(work_of(build.build())) == 99
    finally:
        del registry._models["mylib::fused"]


def test_copies_over_a_link_are_told_from_those_on_the_device(build: CaptureBuilder) -> None:
    for start, name in ((10, "Memcpy HtoD"), (20, "Memcpy DtoD"), (30, "CopyDeviceToDevice")):
        build.kernel(start, 1000 + start, 1005 + start, name, kind="memcpy", bytes=5)
    assert work_of(build.build()).kernels["over_link"].to_list() == [True, False, False]


def fused_adamw(build: CaptureBuilder, start: int) -> None:
    """A call as the profiler shows it with more than 30 parameters: its lists are empty."""
    concrete = [""] * 6 + ["0.1", "0.9", "0.999", "0.10000000000000001", "1e-08", "False", "False"]
    build.op(
        "aten::_fused_adamw_",
        start,
        start + 50,
        dims=json.dumps([[]] * 15),
        types=json.dumps(["TensorList"] * 6 + ["Scalar"] * 7 + ["", ""]),
        input_strides=json.dumps([[]] * 15),
        concrete_inputs=json.dumps([*concrete, "", ""]),
    )
    build.kernel(start + 10, 1000 + start, 1040 + start, "multi_tensor_apply_kernel")


def group(decay: float) -> ParameterGroup:
    return ParameterGroup(optimizer="AdamW", elements=1000, dtype="float", weight_decay=decay)


def cost_with(build: CaptureBuilder, *groups: ParameterGroup) -> Cost | None:
    (signature,) = work_of(build.build(parameter_groups=groups)).signatures
    return signature.cost


def test_an_optimizer_with_empty_lists_has_the_size_of_its_group(build: CaptureBuilder) -> None:
    fused_adamw(build, 0)
    cost = cost_with(build, group(0.1), group(0.0))
    assert cost is not None
    # Parameter, gradient and two moments are read, all but the gradient written.
    assert cost.bytes_read is not None
    assert cost.bytes_read >= 4 * 4 * 1000
    assert cost.bytes_written is not None
    assert cost.bytes_written >= 3 * 4 * 1000


def test_an_optimizer_whose_group_is_not_certain_has_no_cost(build: CaptureBuilder) -> None:
    fused_adamw(build, 0)
    assert cost_with(build) is None
    assert cost_with(build, group(0.5)) is None
    assert cost_with(build, group(0.1), group(0.1)) is None
    # Twice a step: each call may have stepped a part.
    fused_adamw(build, 100)
    assert cost_with(build, group(0.1)) is None


def test_a_cost_model_that_raises_makes_only_its_operator_unknown(
    build: CaptureBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(call: OpCall) -> Cost | None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setitem(registry._models, "mylib::broken", broken)
    build.op("mylib::broken", 0, 100, input_dims="[[4, 4]]", input_types='["float"]')
    build.kernel(50, 1000, 1040)
    (signature,) = work_of(build.build()).signatures
    assert signature.cost is None
    assert "mylib::broken raised ZeroDivisionError: division by zero" in signature.reason


@pytest.fixture
def registered() -> Iterator[dict[str, Any]]:
    """What the model of the kernels my_kernel* was asked, by kernel name."""
    asked: dict[str, Any] = {}

    def model(launch: KernelLaunch) -> Cost | None:
        asked[launch.name] = launch
        if launch.grid is None or launch.block is None:
            return None
        elements = launch.grid[0] * launch.block[0]
        return Cost(flops=(), bytes_read=4 * elements, bytes_written=4 * elements)

    cost_model(kernel="my_kernel*")(model)
    yield asked
    registry._kernel_models.pop("my_kernel*")
    registry._kernel_patterns.remove("my_kernel*")


SIZES = {"grid_x": 10, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}


def test_a_registered_kernel_without_an_operator_owns_itself(
    build: CaptureBuilder, registered: dict[str, Any]
) -> None:
    for start in (100, 200):
        build.kernel(start, 1000 + start, 1040 + start, "my_kernel_0", shared_memory=64, **SIZES)
    build.kernel(300, 1500, 1540, "another_kernel", **SIZES)
    build.kernel(400, 1600, 1640, "my_kernel_1")
    work = work_of(build.build())
    assert owners(work) == ["my_kernel_0", "my_kernel_0", None, "my_kernel_1"]
    assert work.kernels["owner_id"].n_unique() == 4
    first, second = work.signatures
    assert first.detail == "grid 10x1x1, block 128x1x1"
    assert first.cost is not None
    assert first.cost.bytes_moved() == 2 * 4 * 1280
    assert (second.cost, second.detail) == (None, "")
    assert second.reason == "the cost model of my_kernel_1 does not cover this call"
    launch = registered["my_kernel_0"]
    assert (launch.grid, launch.shared_memory, launch.call) == ((10, 1, 1), 64, None)


def test_a_registered_kernel_knows_the_operator_that_has_no_model(
    build: CaptureBuilder, registered: dict[str, Any]
) -> None:
    build.op("mylib::fused", 0, 100, dims="[[8, 4]]", types='["float"]')
    build.kernel(50, 1000, 1040, "my_kernel", **SIZES)
    build.kernel(60, 1040, 1050, "another_kernel")
    work = work_of(build.build())
    assert owners(work) == ["my_kernel", "mylib::fused"]
    call = registered["my_kernel"].call
    assert (call.name, call.tensor(0).shape) == ("mylib::fused", (8, 4))
    assert work.kernels["compute_kernels"].to_list() == [1, 1]


def test_a_modelled_operator_goes_before_a_registered_kernel(
    build: CaptureBuilder, registered: dict[str, Any]
) -> None:
    build.mm(0, 100)
    build.kernel(50, 1000, 1040, "my_kernel", **SIZES)
    assert owners(work_of(build.build())) == ["aten::mm"]
    assert registered == {}


def test_work_outside_the_profiled_steps_is_measured(build: CaptureBuilder) -> None:
    build.mm(0, 100)
    build.kernel(50, 1000, 1040)
    build.mm(200, 300)
    build.kernel(250, 1100, 1170)
    build.step("profiled", 0, 150)
    assert work_of(build.build()).outside_ns == 70


def test_what_the_kernel_tells_of_a_collective_reaches_its_model(build: CaptureBuilder) -> None:
    types = '["TensorList", "", "", "Scalar", "", "ScalarList", "ScalarList", "Scalar"]'
    dims = "[[[1000]], [], [], [], [], [], [], []]"
    build.op("record_param_comms", 0, 100, dims=dims, types=types)
    build.kernel(
        *(50, 1000, 1040, "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"),
        kind="collective",
        collective="allreduce",
        dtype="BFloat16",
    )
    (signature,) = work_of(build.build()).signatures
    assert signature.cost is not None
    assert (signature.cost.bytes_read, signature.cost.bytes_written) == (2000, 2000)


def test_the_launch_of_an_index_reaches_its_model(build: CaptureBuilder) -> None:
    gather = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)"
    sizes = {"grid_y": 1, "grid_z": 1, "block_x": 64, "block_y": 1, "block_z": 1}
    for start, indices in ((0, 7), (100, 8), (200, 8)):
        build.op("aten::index", start, start + 50, dims="[[9, 512], []]", types='["c10::Half", ""]')
        build.kernel(start + 10, 1000 + start, 1040 + start, gather, grid_x=indices, **sizes)
    # Of two kernels none is the one that gathers.
    build.kernel(220, 1300, 1340, "prepare", grid_x=8, **sizes)
    work = work_of(build.build())
    found = [work.signatures[signature].cost for signature in work.kernels["signature"]]
    written = [None if cost is None else cost.bytes_written for cost in found]
    assert written == [7 * 1024, 8 * 1024, None, None]


def test_convolutions_by_a_faster_algorithm_are_kept_apart_and_say_so(
    build: CaptureBuilder,
) -> None:
    columns = {
        "dims": "[[1, 8, 16, 16], [8, 8, 3, 3], [], [], [], []]",
        "types": '["float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar"]',
        "concrete_inputs": '["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]',
    }
    kernels = ("implicit_gemm_a", "winogradForwardData4x4", "implicit_gemm_b")
    for start, name in zip((0, 100, 200), kernels, strict=True):
        build.op("aten::cudnn_convolution", start, start + 50, **columns)
        build.kernel(start + 10, 1000 + start, 1040 + start, name)
    work = work_of(build.build())
    assert work.kernels["signature"].to_list() in ([0, 1, 0], [1, 0, 1])
    costs = [signature.cost for signature in work.signatures]
    assert {cost.matmul_flops() for cost in costs if cost} == {2 * 256 * 8 * 8 * 9}
    assert sorted(len(cost.assumptions) for cost in costs if cost) == [0, 1]


def test_work_in_several_pieces_counts_each_piece_once(tmp_path: Path) -> None:
    """On a CPU: 100 us of an operator without a model, 10 us each of two below it."""

    def op(number: int, name: str, start: int, duration: int) -> dict[str, Any]:
        args = {"External id": number, "Input Dims": [[8]], "Input type": ["float"]}
        times = {"ts": start, "dur": duration, "pid": 1, "tid": 1}
        return {"ph": "X", "cat": "cpu_op", "name": name, "args": args, **times}

    events = [
        op(1, "mylib::block", 1000, 100),
        op(2, "aten::relu", 1020, 10),
        op(3, "aten::relu", 1050, 10),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    analysis = analyze(kineto.read(path))
    times = {op.name: (op.calls, op.device_ns) for op in analysis.ops}
    assert times == {"mylib::block": (1, 80_000), "aten::relu": (2, 20_000)}
    assert analysis.coverage.device_ns == 100_000
