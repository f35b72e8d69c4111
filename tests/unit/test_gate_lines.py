"""Which line of a program launches an operator, told by a recording."""

import os
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from capture_builder import CaptureBuilder
from torch.utils.checkpoint import checkpoint

from gpuprof.collectors import kineto, schema, storage
from gpuprof.collectors.call_tree.program_places import (
    LINE,
    PlaceCodes,
    with_places,
    with_positions,
)
from gpuprof.collectors.live.program_positions import ProgramPositions
from gpuprof.collectors.live.torch_trace import TorchTrace
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.gate.call_text import call_text, tensors_of
from gpuprof.roofline.gate.launching import recorded_places
from gpuprof.roofline.gate.result import Explanation, Place
from gpuprof.roofline.work.op_tree import op_phases

CAPTURES = Path(__file__).parents[1] / "data" / "captures"


def recorded_lines(source: str, folder: Path, *, autograd_seen: bool = True) -> dict[str, int]:
    """The lines of the program `source` that launch what a recording of it holds.

    Without `autograd_seen` as on a GPU, where nobody sees what autograd's own threads run.
    """
    (folder / "program.py").write_text(source)
    trace, recorder = TorchTrace(folder / "trace.json", steps=None), ProgramPositions()
    before = Path.cwd()
    os.chdir(folder)
    try:
        trace.start()
        recorder.start()
        runpy.run_path("program.py")
        positions = recorder.stop()["positions"]
        trace.stop()
    finally:
        os.chdir(before)
    capture = kineto.read(trace.export(), advise=False)
    process = capture.ops["process"][0]
    rows = [{**row, "process": process, "rank": 0} for row in positions]
    ops = with_positions(capture.ops, pl.DataFrame(rows, schema=schema.POSITIONS))
    if not autograd_seen:
        unseen = pl.lit(op_phases(capture)["phase"] == "backward")
        ops = ops.with_columns(
            pl.when(~unseen).then(pl.col(name)).alias(name) for name in ("file", "line")
        )
    places = recorded_places([replace(capture, ops=ops)])
    assert {place.file for place in places.values()} <= {"program.py"}
    return {call: place.line for call, place in places.items()}


def test_the_line_that_launches_an_operator_is_known_where_it_is_one(tmp_path: Path) -> None:
    lines = recorded_lines(
        "import torch\n"
        "x = torch.ones(4, 4)\n"
        "def normalised(y):\n"
        "    return torch.softmax(y, -1)\n"
        "for _ in range(20):\n"
        "    y = normalised(x @ x)\n"
        "    z = torch.nn.functional.gelu(y).cumsum(0)\n"
        "    z = z.cumsum(0)\n",
        tmp_path,
    )

    assert (lines["aten::_softmax"], lines["aten::mm"], lines["aten::gelu"]) == (4, 6, 7)
    # Two lines call it.
    assert "aten::cumsum" not in lines


def test_of_many_products_each_is_found_by_its_tensors(tmp_path: Path) -> None:
    lines = recorded_lines(
        "import torch\n"
        "x = torch.ones(4, 8, requires_grad=True)\n"
        "w = torch.ones(8, 2)\n"
        "for _ in range(20):\n"
        "    y = x @ w\n"
        "    z = x.bfloat16() @ w.bfloat16()\n"
        "    s = torch.cat([y, y])\n"
        "    y.sum().backward()\n",
        tmp_path,
    )

    assert "aten::mm" not in lines
    assert lines["aten::mm float32[4, 8], float32[8, 2]"] == 5
    assert lines["aten::mm bfloat16[4, 8], bfloat16[8, 2]"] == 6
    assert lines["aten::cat [4, 2], [4, 2]"] == 7


def test_what_an_operator_calls_inside_is_launched_where_that_one_is(tmp_path: Path) -> None:
    lines = recorded_lines(
        "import torch\n"
        "x = torch.ones(4, 4).fill_(2)\n"
        "mask = x > 3\n"
        "for _ in range(20):\n"
        "    y = x.masked_fill(mask, 1)\n"
        "    z = torch.zeros(3)\n"
        "    x / 2\n"
        "    x / 3\n"
        "    x[:2] / 2\n",
        tmp_path,
    )

    assert lines["aten::masked_fill_ float32[4, 4], bool[4, 4]"] == 5
    # Line 2 calls it by name, but in the loop zeros does.
    assert lines["aten::zero_ float32[3]"] == lines["aten::zeros"] == 6
    assert lines["aten::fill_ float32[4, 4]"] == 2
    # Three lines, of which one has a tensor of its own.
    assert "aten::div" not in lines
    assert lines["aten::div float32[2, 4]"] == 9


def test_a_backward_pass_is_launched_where_what_it_differentiates_is(tmp_path: Path) -> None:
    lines = recorded_lines(
        "import torch\n"
        "class Doubled(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        return 2 * x\n"
        "    @staticmethod\n"
        "    def backward(ctx, gradient):\n"
        "        return gradient.cumsum(0)\n"
        "x = torch.ones(4, 8, requires_grad=True)\n"
        "w = torch.ones(8, 2, requires_grad=True)\n"
        "v = torch.ones(2, 2, requires_grad=True)\n"
        "for _ in range(20):\n"
        "    y = x @ w\n"
        "    z = torch.softmax(y, -1)\n"
        "    loss = (Doubled.apply(z) @ v).sum()\n"
        "    loss.backward()\n",
        tmp_path,
    )

    backward = "in the backward pass"
    assert lines[f"aten::mm float32[4, 2], float32[2, 8] {backward}"] == 13
    assert lines[f"aten::mm float32[8, 4], float32[4, 2] {backward}"] == 13
    assert lines[f"aten::mm float32[4, 2], float32[2, 2] {backward}"] == 15
    assert lines[f"aten::_softmax_backward_data {backward}"] == 14
    # A backward in Python has lines of its own.
    assert lines[f"aten::cumsum {backward}"] == 8
    assert f"aten::mm {backward}" not in lines


def test_what_several_lines_call_hides_what_it_calls_inside(tmp_path: Path) -> None:
    lines = recorded_lines(
        "import torch\n"
        "x, y = torch.ones(4, 4), torch.ones(3)\n"
        "for _ in range(20):\n"
        "    y.copy_(y)\n"
        "    x.clone()\n"
        "    x.clone()\n",
        tmp_path,
    )

    assert lines["aten::copy_ float32[3], float32[3]"] == 4
    # clone calls copy_, and either line clone: not line 4.
    assert "aten::copy_ float32[4, 4], float32[4, 4]" not in lines
    assert "aten::clone" not in lines


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("autograd_seen", [False, True])
def test_of_a_checkpoint_the_second_forward_has_the_lines_of_the_first(
    tmp_path: Path, reentrant: bool, autograd_seen: bool
) -> None:
    # The first call imports much of torch, at so many events that nothing is followed after it.
    checkpoint(torch.tanh, torch.ones(1, requires_grad=True), use_reentrant=reentrant)
    lines = recorded_lines(
        "import torch\n"
        "from torch.utils.checkpoint import checkpoint\n"
        "w = torch.ones(8, 8, requires_grad=True)\n"
        "def block(x):\n"
        "    y = x @ w\n"
        "    return torch.tanh(y)\n"
        "for _ in range(20):\n"
        "    x = torch.ones(4, 8, requires_grad=True)\n"
        f"    checkpoint(block, x, use_reentrant={reentrant}).sum().backward()\n",
        tmp_path,
        autograd_seen=autograd_seen,
    )

    backward = "in the backward pass"
    assert lines["aten::tanh"] == lines[f"aten::tanh {backward}"] == 6
    assert lines[f"aten::tanh_backward {backward}"] == 6
    assert lines[f"aten::mm float32[8, 4], float32[4, 8] {backward}"] == 5


@pytest.mark.parametrize(
    ("shapes", "tensors"),
    [
        ('[[4, 8], [8, 2]] ["float", "c10::BFloat16"]', "float32[4, 8], bfloat16[8, 2]"),
        ('[[4, 8], [], []] ["float", "Scalar", ""]', "float32[4, 8]"),
        ('[[[4, 2], [4, 2]], []] ["TensorList", "Scalar"]', "[4, 2], [4, 2]"),
        # A number, as a tensor without dimensions.
        ('[[4, 8], []] ["float", "double"]', "float32[4, 8]"),
        ('[[]] ["long int"]', ""),
        # Without types, cut off, or a launch configuration.
        ("[[4, 8], [8, 2]]", None),
        ("[[4, 8], [8,", None),
        ('[4] ["float", "float"]', None),
        ("grid 1x1x1, block 128x1x1", None),
        ("", None),
    ],
)
def test_a_trace_s_shapes_and_a_running_program_s_are_the_same_text(
    shapes: str, tensors: str | None
) -> None:
    assert tensors_of(shapes) == tensors


def test_on_a_gpu_the_causes_of_a_slow_down_have_their_lines() -> None:
    # Attention written out: 20 divides the scores, 21 masks them, 22 has softmax and the product.
    # On a GPU autograd's own thread runs the backward pass.
    scores, mask = "bfloat16[4, 16, 2048, 2048]", "bool[2048, 2048]"
    seen = {
        "aten::bmm bfloat16[64, 2048, 128], bfloat16[64, 128, 2048]": 20,
        f"aten::div {scores}": 20,
        f"aten::masked_fill {scores}, {mask}": 21,
        f"aten::_softmax {scores}": 22,
        "aten::bmm bfloat16[64, 2048, 2048], bfloat16[64, 2048, 128]": 22,
    }
    base, head = (storage.load(CAPTURES / f"h100_attention_{side}") for side in ("base", "head"))
    lines = [
        seen.get(call_text(name, tensors_of(f"{dims} {types}") or "", backward=False), 0)
        for name, dims, types in head.ops.select("name", "input_dims", "input_types").iter_rows()
    ]
    forward = (op_phases(head)["phase"] != "backward").to_numpy()
    at_start = np.where(forward, lines, 0)
    # Codes of places count from 1, so a line is its own code here.
    table = pl.DataFrame(
        {"file": "train.py", "line": range(1, 23), "function": "", "function_line": 1}
    )
    table = table.cast({"line": pl.Int32, "function_line": pl.Int32})
    codes = PlaceCodes(table, at_start, np.zeros_like(at_start), at_start)
    why = Explanation(
        benchmark="train",
        comparison=compare(analyze(base), analyze(head)),
        sources=recorded_places([replace(head, ops=with_places(head.ops, LINE, codes))]),
    )

    largest = [(cause.op, cause.source and cause.source.line) for cause in why.culprits[:9]]

    assert largest == [
        ("aten::masked_fill_", 21),
        ("aten::masked_fill_ backward", 21),
        ("aten::_softmax", 22),
        ("aten::mul backward", 22),
        ("aten::_softmax_backward_data backward", 22),
        # Copies that masking makes.
        ("aten::copy_", 21),
        ("aten::copy_ backward", 21),
        ("aten::div", 20),
        ("aten::div backward", 20),
    ]


def test_each_thread_counts_what_autograd_records_for_itself(build: CaptureBuilder) -> None:
    # A checkpoint's second forward, on a thread of autograd's, has a number of the first.
    autograd = {"thread": 2}
    build.op("aten::exp", 0, 10, sequence=6)
    build.op("aten::sin", 10, 20, sequence=7)
    checkpoint = build.op("CheckpointFunctionBackward", 100, 200, sequence=5, **autograd)
    build.op("aten::relu", 110, 120, sequence=7, parent_id=checkpoint, **autograd)
    for number, (node, inner) in enumerate(
        [("ReluBackward0", "aten::threshold_backward"), ("ExpBackward0", "aten::mul")]
    ):
        start = 210 + 20 * number
        parent = build.op(node, start, start + 10, sequence=7 - number, **autograd)
        build.op(inner, start + 1, start + 9, parent_id=parent, **autograd)
    capture = build.build()
    known = {"aten::exp": 1, "aten::sin": 2, "aten::relu": 3}
    capture = replace(
        capture,
        ops=capture.ops.with_columns(
            line=pl.col("name").replace_strict(known, default=None, return_dtype=pl.Int32)
        ).with_columns(file=pl.when(pl.col("line").is_not_null()).then(pl.lit("a.py"))),
    )

    lines = {call: place.line for call, place in recorded_places([capture]).items()}

    assert lines["aten::exp"] == 1
    assert lines["aten::relu in the backward pass"] == 3
    # Of sin or of relu.
    assert "aten::threshold_backward in the backward pass" not in lines


def test_a_line_outside_of_the_repository_is_no_place(build: CaptureBuilder) -> None:
    files = {"aten::exp": "train.py", "aten::sin": "/home/me/lib.py", "aten::cos": "<string>"}
    for number, name in enumerate(files):
        build.op(name, 10 * number, 10 * number + 5)
    capture = build.build()
    ops = capture.ops.with_columns(
        file=pl.col("name").replace_strict(files), line=pl.lit(3, pl.Int32)
    )
    assert recorded_places([replace(capture, ops=ops)]) == {
        "aten::exp": Place(file="train.py", line=3)
    }
