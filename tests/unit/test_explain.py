"""`gpuprof explain`: one operator or kernel through all layers."""

import json
from pathlib import Path

import msgspec
import pytest
from capture_builder import H100, CaptureBuilder
from recordings import analyses, capture_of

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Device
from gpuprof.profiler.cli import main
from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.explain.choosing import matches, near_names
from gpuprof.roofline.explain.explain import WorkExplanation, explain, points_under

DATA = Path(__file__).parents[1] / "data"
RECORDED = sorted(
    (
        *(DATA / "captures").iterdir(),
        *(path for path in (DATA / "kineto").iterdir() if path.suffix in (".json", ".gz")),
        *(DATA / "nsys").glob("*.sqlite.gz"),
        *(DATA / "ncu").glob("*raw.csv.gz"),
    )
)
INFER = DATA / "kineto" / "h100_block_infer_fp16.json.gz"
HOPPER = msgspec.structs.replace(H100, compute_capability="9.0")
NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SPLIT = "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16>(int)"


def products(build: CaptureBuilder, device: Device | None = HOPPER) -> Capture:
    """Three calls of one product: 100, 160 and 120 ns, each with a helper of 5."""
    build.step("profiled", 0, 1000)
    for index, length in enumerate((100, 160, 120)):
        start = index * 200
        outer = build.op("aten::linear", start, start + 50)
        build.mm(start + 1, start + 40, parent_id=outer)
        launch = {
            "grid_x": 264, "grid_y": 1, "grid_z": 1, "block_x": 384, "block_y": 1, "block_z": 1,
            "registers": 168, "shared_memory": 213_188,
        }  # fmt: skip
        build.kernel(start + 5, start + 100, start + 100 + length, name=NVJET, **launch)
        build.kernel(start + 6, start + 270, start + 275, name=SPLIT)
    return build.build(device)


def explained(capture: Capture, name: str) -> WorkExplanation:
    analysis = analyze(capture)
    (point,) = matches(analysis, name)
    return explain(capture, analysis, point)


def test_an_operator_through_the_layers(build: CaptureBuilder) -> None:
    found = explained(products(build), "aten::mm")
    assert found.layers.called_by == ("aten::linear", "aten::mm")
    # Of a call with all its kernels.
    time = found.layers.time
    assert time is not None
    assert (time.number, time.total_ns) == (3, 395)
    assert (time.minimum_ns, time.median_ns, time.maximum_ns) == (105, 125, 165)
    main_kernel, helper = found.layers.kernels
    assert (main_kernel.role, helper.role) == ("main", "helper")
    assert main_kernel.decoded is not None
    assert main_kernel.decoded.tile == (256, 128, 64)
    (launch,) = main_kernel.launches
    assert launch.grid == (264, 1, 1)
    # 12 warps of 168 registers: 65 536 / (12 x 168 x 32) is one block; shared memory one too.
    assert launch.blocks_per_multiprocessor == 1
    assert launch.occupancy == 12 / 64
    assert launch.limited_by == ("registers", "shared memory")
    assert launch.waves == 2.0
    # Its launch was not recorded.
    assert helper.launches == ()
    assert found.point.flops is not None


def test_a_kernel_of_an_operator(build: CaptureBuilder) -> None:
    found = explained(products(build), NVJET)
    assert found.point.level == "kernel"
    assert found.layers.time is not None
    assert (found.layers.time.number, found.layers.time.median_ns) == (3, 120)
    (kernel,) = found.layers.kernels
    assert kernel.time == found.layers.time


def test_what_is_not_known_is_named_with_what_tells_it(build: CaptureBuilder) -> None:
    found = explained(products(build, device=H100), "aten::mm")
    (launch,) = found.layers.kernels[0].launches
    assert launch.occupancy is None
    unknown = {each.what: each.told_by for each in found.layers.unknown}
    assert "compute capability" in unknown["occupancy"]
    assert "--counters" in unknown["counters"]
    assert "shapes" not in unknown


def test_the_largest_operators_are_explained_in_the_analysis(build: CaptureBuilder) -> None:
    capture = products(build)
    analysis = analyze(capture)
    (largest,) = analysis.explained
    point = analysis.ops[largest.op]
    assert point.name == "aten::mm"
    assert largest.layers == explain(capture, analysis, point).layers
    page = render_html(analysis)
    assert '<section id="explained">' in page
    assert "1 block on a multiprocessor at a time" in page
    stored = msgspec.json.decode(msgspec.json.encode(analysis))
    del stored["explained"]
    assert msgspec.convert(stored, Analysis).explained == ()


def test_module_and_line(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    for index, module in enumerate(("mlp.up", "mlp.up", "mlp.gate")):
        start = index * 100
        origin = {"module": module, "file": "train.py", "line": 42, "function": "forward"}
        build.mm(start, start + 40, **origin)
        build.kernel(start + 5, start + 50, start + 90, name=NVJET)
    capture = build.build(HOPPER)
    analysis = analyze(capture)
    points = matches(analysis, "aten::mm")
    assert [(point.module, point.calls) for point in points] == [("mlp.up", 2), ("mlp.gate", 1)]
    for point in points:
        found = explain(capture, analysis, point)
        assert found.layers.module == point.module
        assert found.layers.line == "train.py:42 in forward"
        assert "line" not in {each.what for each in found.layers.unknown}


def test_names_match_exactly_then_by_their_own_then_in_part(build: CaptureBuilder) -> None:
    analysis = analyze(products(build))
    assert [point.name for point in matches(analysis, "aten::mm")] == ["aten::mm"]
    assert [point.name for point in matches(analysis, "MM")] == ["aten::mm"]
    assert [point.name for point in matches(analysis, "splitkreduce")] == [SPLIT]
    assert [point.name for point in matches(analysis, "t")] == ["aten::mm", NVJET, SPLIT]
    assert matches(analysis, "softmax") == ()
    assert near_names(analysis, "nvjit") == ("nvjet",)


def test_a_composite_operator_means_what_it_calls(build: CaptureBuilder) -> None:
    capture = products(build)
    analysis = analyze(capture)
    assert matches(analysis, "aten::linear") == ()
    assert [point.name for point in points_under(capture, analysis, "linear")] == ["aten::mm"]
    assert points_under(capture, analysis, "lin") == ()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_source_can_be_explained(path: Path) -> None:
    """The durations, calls and launches of an explanation are those of its row."""
    capture = capture_of(path)
    if capture is None:
        return
    # Of the first rank, as without a choice.
    analysis = analyses(path)[0]
    chosen: list[RooflinePoint] = []
    for points in (analysis.ops, analysis.kernels):
        chosen += [points[0], points[-1]] if points else []
    for point in chosen:
        found = explain(capture, analysis, point)
        assert sum(kernel.time.total_ns for kernel in found.layers.kernels) == point.device_ns
        assert found.layers.time is not None
        assert found.layers.time.total_ns == point.device_ns
        assert found.layers.time.number == point.calls
        for kernel in found.layers.kernels:
            assert sum(launch.number for launch in kernel.launches) <= kernel.time.number
            for launch in kernel.launches:
                assert launch.occupancy is None or 0 < launch.occupancy <= 1
        assert msgspec.json.encode(found)


def test_the_command_explains_prints_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(INFER), "scaled_dot_product_attention"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Ran cuDNN by aten::scaled_dot_product_attention" in text
    assert "cuDNN: attention, forward, flash, tile 64x128x128" in text
    assert "18.8% in theory 1 block on a multiprocessor at a time" in text
    assert main(["explain", str(INFER), "mm"]) == 0
    assert "4 matches" in capsys.readouterr().out
    assert main(["explain", str(INFER), "mm", "--pick", "2", "--json"]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert stored["point"]["name"] == "aten::mm"
    assert stored["layers"]["kernels"][0]["decoded"]["precision"] == "fp16"
    assert main(["explain", str(INFER), "mm", "--pick", "5"]) == 2
    assert "--pick 5: mm has 4 matches" in capsys.readouterr().err
    assert main(["explain", str(INFER), "flsh"]) == 2
    assert "near: flash" in capsys.readouterr().err
    assert main(["explain", str(INFER), "mm", "--rank", "7"]) == 2
    assert main(["explain", "nowhere.json", "mm"]) == 1
    error = capsys.readouterr().err
    assert "nowhere.json" in error
    assert "Traceback" not in error
