"""`gpuprof repro`: one operator of a capture as a script that needs nothing but torch."""

import ast
import json
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_builder import H100, CaptureBuilder
from torch.nn import functional as F

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.captures import read_capture_and_analysis
from gpuprof.profiler.cli import main
from gpuprof.profiler.repro.python_call import python_call
from gpuprof.profiler.repro.recorded import as_python
from gpuprof.profiler.repro.script import render_script
from gpuprof.profiler.repro.values import _table
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models.call import parse_call
from gpuprof.roofline.explain.calls import RecordedCalls, RepeatableCall

DATA = Path(__file__).parents[1] / "data"
BLOCK = DATA / "captures" / "h200_llama_block"
# Rows of a vocabulary and classes: an index beyond them is an error of torch.
FEW = 5


def program() -> None:
    """One of each family of operators, forward and backward."""
    table = torch.randn(FEW, 16, requires_grad=True)
    x = F.embedding(torch.randint(FEW, (4, 8)), table)
    x = F.layer_norm(x, (16,), torch.ones(16, requires_grad=True))
    q = x.view(4, 8, 2, 8).transpose(1, 2)
    attended = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    x = x + attended.transpose(1, 2).reshape(4, 8, 16)
    x = F.gelu(F.linear(x, torch.randn(12, 16, requires_grad=True), torch.randn(12)))
    image = torch.randn(2, 3, 16, 16, requires_grad=True)
    y = F.batch_norm(image, torch.zeros(3), torch.ones(3), training=True)
    y = F.max_pool2d(F.conv2d(y, torch.randn(4, 3, 3, 3, requires_grad=True), padding=1), 2)
    rows = x.view(32, 12)
    picked = rows.index_select(0, torch.randint(32, (6,))).sum()
    picked = picked + rows.gather(1, torch.randint(12, (32, 3))).mean()
    parts = torch.cat([rows, rows.sqrt().nan_to_num()], 1).cumsum(1).clamp(-1, 1).softmax(1)
    loss = F.cross_entropy(rows, torch.randint(12, (32,))) + picked + parts.std() + y.pow(2).mean()
    loss.backward()
    torch.zeros(32, 12).scatter_add_(1, torch.randint(12, (32, 3)), torch.ones(32, 3))
    torch.zeros(64).random_(0, 9)
    torch.topk(rows.detach(), 3)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, tuple[RepeatableCall, ...]]:
    """The analysis of a trace of `program`, and every call with work of its own or below it."""
    file = tmp_path_factory.mktemp("repro") / "trace.json"
    with torch.profiler.profile(record_shapes=True) as profile:
        program()
    profile.export_chrome_trace(str(file))
    capture, analysis = read_capture_and_analysis(file, None)
    return analysis, recorded_calls(capture, analysis, "aten::")


def recorded_calls(capture: Capture, analysis: Analysis, name: str) -> tuple[RepeatableCall, ...]:
    calls = RecordedCalls(capture, analysis)
    return tuple(calls.read(*each) for each in calls.called(name))


def run(text: str, *options: str) -> None:
    """The script in this process, on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["script.py", "--device", "cpu", *options])
        exec(compile(text, "script.py", "exec"), {"__name__": "__main__"})


def test_every_operator_that_was_recorded_runs_again(
    calls: tuple[Any, tuple[RepeatableCall, ...]],
) -> None:
    analysis, recorded = calls
    ran = set()
    refused = set()
    for one in recorded:
        try:
            text = render_script(analysis, one, as_python(one))
        except CommandError:
            refused.add(one.group.name)
            continue
        run(text, "--once")
        ran.add(one.group.name)
    wanted = (
        *("embedding", "linear", "addmm", "conv2d", "convolution_backward"),
        *("scaled_dot_product_attention", "native_layer_norm_backward", "embedding_dense_backward"),
        *("_softmax", "cumsum", "sum", "mean", "pow", "gather", "index_select", "topk"),
        *("scatter_add_", "nll_loss_forward", "nll_loss_backward", "max_pool2d_with_indices"),
        *("max_pool2d_with_indices_backward", "native_batch_norm", "gelu_backward", "random_"),
    )
    assert {f"aten::{name}" for name in wanted} - ran == set()
    # A trace of torch's own profiler leaves out the types of lists.
    assert refused == {"aten::cat"}


def test_a_script_times_its_call_and_prints_its_work(
    calls: tuple[Any, tuple[RepeatableCall, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    analysis, recorded = calls
    (addmm,) = (one for one in recorded if one.group.name == "aten::addmm")
    run(render_script(analysis, addmm, as_python(addmm)), "--seconds", "0.02")
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(said) == ["Device", "Time", "Recorded", "FLOPs", "Bytes", "Intensity", "Roof"]
    assert "median of" in said["Time"]
    assert "interquartile range" in said["Time"]
    assert said["FLOPs"].startswith("12.29 kFLOP fp32 matmul; ")
    # 32x16, 16x12 and the bias of 12 read; 32x12 written: floats.
    assert said["Bytes"].startswith("2.864 kB read, 1.536 kB written; ")


def test_what_a_call_writes_into_is_put_back(
    calls: tuple[Any, tuple[RepeatableCall, ...]],
) -> None:
    _, recorded = calls
    (scatter,) = (one for one in recorded if one.group.name == "aten::scatter_add_")
    assert as_python(scatter).updated == (0,)
    (addmm,) = (one for one in recorded if one.group.name == "aten::addmm")
    assert as_python(addmm).updated == ()


def test_work_and_ceilings_are_the_captures(tmp_path: Path) -> None:
    capture, analysis = read_capture_and_analysis(BLOCK, None)
    found = recorded_calls(capture, analysis, "mm")
    point = next(each for each in analysis.ops if each.name == "aten::mm")
    largest = found[0]
    assert (largest.group.name, largest.group.device_ns) == (point.name, point.device_ns)
    assert point.flops is not None
    assert [part.count * largest.group.calls for part in largest.flops or ()] == [
        part.count for part in point.flops
    ]
    text = render_script(analysis, largest, as_python(largest))
    binding = largest.roof.binding
    assert binding is not None
    assert point.roof_ns == pytest.approx(binding.ns * largest.group.calls, rel=1e-6)
    assert (
        f"('bf16 tensor (datasheet, dense)', 989400000000000, 'FLOP/s', {round(binding.ns)})"
        in text
    )
    assert "tensor((11008, 4096), " in text
    assert "DEVICE, DEVICE_KIND = 'NVIDIA H200', 'cuda'" in text


def test_an_operator_that_only_calls_others_has_their_work() -> None:
    capture, analysis = read_capture_and_analysis(BLOCK, None)
    attention = recorded_calls(capture, analysis, "scaled_dot_product_attention")[0]
    owner = recorded_calls(capture, analysis, "_cudnn_attention_forward")[0]
    assert attention.group.name == "aten::scaled_dot_product_attention"
    assert attention.group.device_ns == owner.group.device_ns
    assert attention.flops == owner.flops
    assert as_python(attention).operator == "torch.ops.aten.scaled_dot_product_attention.default"
    # A kernel stands for what launched it.
    kernels = recorded_calls(capture, analysis, "nvjet")
    assert {each.group.name for each in kernels} == {"aten::mm"}


def test_the_command_writes_a_script_that_imports_torch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["repro", str(BLOCK), "aten::mm"]) == 0
    done = capsys.readouterr()
    assert done.out == "python aten-mm.py\n"
    assert "calls with different arguments; this is number 1:" in done.err
    tree = ast.parse(Path("aten-mm.py").read_text())
    imported = {node.names[0].name for node in ast.walk(tree) if isinstance(node, ast.Import)}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported - sys.stdlib_module_names == {"torch"}
    assert main(["repro", str(BLOCK), "aten::mm"]) == 1
    assert "aten-mm.py exists; choose another" in capsys.readouterr().err
    assert main(["repro", str(BLOCK), "mm", "--pick", "999"]) == 2
    assert "with different arguments" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "dims", "types", "concrete", "reason"),
    [
        (
            "MmBackward0",
            None,
            None,
            None,
            "is no operator but a range, a node of autograd",
        ),
        ("aten::mm", None, None, None, "its shapes were not recorded; record them with"),
        (
            *("aten::index", "[[8, 8], []]", '["float", ""]', '["", ""]'),
            "torch's profiler does not record its argument indices",
        ),
        (
            *("aten::_softmax", "[[8, 8], [], []]", '["float", "Scalar", "Scalar"]', None),
            "the value of dim was not recorded; record it with gpuprof run",
        ),
        (
            *("aten::relu", "[[8, 8]]", '["an unknown type"]', '[""]'),
            "the type of self was not recorded",
        ),
        (
            *("aten::mm", "[[8, 8]]", '["float"]', '[""]'),
            "its recorded arguments fit no overload of torch",
        ),
        (
            *("aten::_foreach_add_", "[[], []]", '["TensorList", "Scalar"]', '["", "1"]'),
            "none of the tensors in its lists were recorded",
        ),
        ("mine::op", "[[8]]", '["float"]', '[""]', "mine::op is no operator of torch"),
    ],
)
def test_what_cannot_be_called_is_told_in_one_line(
    build: CaptureBuilder,
    name: str,
    dims: str | None,
    types: str | None,
    concrete: str | None,
    reason: str,
) -> None:
    build.step("profiled", 0, 1000)
    build.op(name, 0, 100, input_dims=dims, input_types=types, concrete_inputs=concrete)
    build.kernel(10, 100, 200, name="kernel")
    capture = build.build(H100)
    (call,) = recorded_calls(capture, analyze(capture), name)
    with pytest.raises(CommandError) as caught:
        as_python(call)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_was_not_recorded_and_has_a_default_is_said() -> None:
    gelu = parse_call("aten::gelu", "[[4, 4], []]", '["float", ""]', "[[4, 1], []]", '["", ""]')
    assert gelu is not None
    found = python_call(gelu)
    assert found.arguments == (("tensor((4, 4), (4, 1), torch.float32)", ""),)
    assert found.defaults == ("approximate",)


def test_arguments_by_name_and_of_types_that_a_trace_has_as_numbers() -> None:
    copied = parse_call(
        "aten::_to_copy",
        "[[4, 4], [], [], [], [], [], []]",
        '["float", "Scalar", "", "", "", "Scalar", ""]',
        None,
        '["", "15", "", "", "", "False", ""]',
    )
    assert copied is not None
    named = {name: text for text, name in python_call(copied).arguments if name}
    assert named == {"dtype": "torch.bfloat16", "non_blocking": "False"}


def test_the_table_of_values_names_arguments_that_there_are() -> None:
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    for row in _table():
        for pattern in row.operators:
            meant = [name for name in names if fnmatchcase(name, pattern)]
            assert meant, pattern
            arguments = {
                argument.name
                for name in meant
                for schema in torch._C._jit_get_schemas_for_operator(name)
                for argument in schema.arguments
            }
            wanted = {row.argument, row.tensor, row.axis_argument, row.count_argument} - {""}
            assert wanted <= arguments, (pattern, wanted - arguments)


@pytest.mark.parametrize(
    ("types", "cast"),
    [
        ('["float", "float"]', "15"),
        # The weight was cast before, and kept.
        ('["c10::BFloat16", "float"]', None),
    ],
)
def test_what_ran_under_autocast_does_again(
    build: CaptureBuilder, types: str, cast: str | None
) -> None:
    build.step("profiled", 0, 1000)
    linear = build.op(
        *("aten::linear", 0, 100),
        input_dims="[[8, 4], [6, 4]]",
        input_types=types,
        concrete_inputs='["", ""]',
    )
    if cast is not None:
        build.op(
            *("aten::to", 1, 5),
            parent_id=linear,
            input_dims="[[6, 4], [], [], [], []]",
            input_types='["float", "Scalar", "Scalar", "Scalar", ""]',
            concrete_inputs=f'["", "{cast}", "False", "False", ""]',
        )
    build.kernel(10, 100, 200, name="kernel")
    capture = build.build(H100)
    analysis = analyze(capture)
    (call,) = recorded_calls(capture, analysis, "aten::linear")
    text = render_script(analysis, call, as_python(call))
    assert "torch.autocast(device.type, torch.bfloat16)" in text
    run(text, "--once")


def test_indices_lie_within_what_they_index(
    calls: tuple[Any, tuple[RepeatableCall, ...]],
) -> None:
    _, recorded = calls
    (embedding,) = (one for one in recorded if one.group.name == "aten::embedding")
    arguments = [text for text, _ in as_python(embedding).arguments]
    assert arguments[1] == f"tensor((4, 8), (8, 1), torch.int64, below={FEW})"


def test_the_answer_as_json_says_which_call_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["repro", str(BLOCK), "aten::linear", "--json", "-o", "linear.py"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["overload"] == "torch.ops.aten.linear.default"
    assert found["file"] == "linear.py"
    assert sum(part["count"] for part in found["flops"]) == 2 * 4096 * 4096 * 11008
