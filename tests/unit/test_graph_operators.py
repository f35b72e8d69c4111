"""Operators of replayed graphs, from their captures and from eager work."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_traces import GraphTrace, Node

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.opening import open_traces
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.attribution import attribute

DATA = Path(__file__).parents[1] / "data" / "kineto"
PUBLIC = Path(__file__).parents[3] / "shared" / "data" / "public" / "kineto"
MM = "[[64, 32], [32, 16]]"
WIDE_MM = "[[64, 32], [32, 128]]"
ADD = "[[64, 16], [64, 16]]"
LAYER: list[Node] = [
    ("gemm", 8, "aten::mm", MM),
    ("elementwise", 4, "aten::add", ADD),
    ("elementwise", 4, "aten::mul", ADD),
]


def launched(nodes: list[Node]) -> list[tuple[str, int]]:
    return [(name, grid) for name, grid, *_ in nodes]


def operators(capture: Capture) -> list[tuple[str | None, str | None, bool | None]]:
    """Name and shapes of the operator of each kernel, and whether it is certain."""
    named = capture.ops.select("op_id", "input_dims", op="name")
    kernels = capture.kernels.join(named, on="op_id", how="left", maintain_order="left")
    return kernels.select("op", "input_dims", "op_certain").rows()


def names(capture: Capture) -> list[str | None]:
    return [name for name, *_ in operators(attribute(capture))]


@pytest.fixture
def trace(tmp_path: Path) -> Any:
    def write(name: str, *parts: Any, **options: Any) -> Path:
        made = GraphTrace(**options)
        for add in parts:
            add(made)
        return made.write(tmp_path / f"{name}.json.gz")

    return write


def test_a_capture_in_the_trace_itself_tells_operators_by_name_and_grid(trace: Any) -> None:
    def program(made: GraphTrace) -> None:
        made.capture(LAYER, named=True)
        made.replay(launched(LAYER))
        made.replay(launched(LAYER))

    capture = attribute(open_traces([trace("run", program)]))
    told = [("aten::mm", MM, True), ("aten::add", ADD, True), ("aten::mul", ADD, True)]
    assert operators(capture) == told * 2
    graph, *none = analyze(capture).graphs
    assert not none
    assert (graph.told_by, graph.replays, graph.pieces_with_op, graph.pieces) == (
        "capture",
        2,
        6,
        6,
    )


def test_each_replay_is_a_call_and_counts_its_flops(trace: Any) -> None:
    def program(made: GraphTrace) -> None:
        made.capture(LAYER, named=True)
        for _ in range(5):
            made.replay(launched(LAYER))

    analysis = analyze(open_traces([trace("run", program)]))
    (product,) = [point for point in analysis.ops if point.name == "aten::mm"]
    assert product.calls == 5
    assert sum(part.count for part in product.flops or ()) == 5 * 2 * 64 * 32 * 16


def test_calls_without_names_tell_operators_by_their_order_and_number(trace: Any) -> None:
    def program(made: GraphTrace) -> None:
        made.capture(LAYER)
        made.replay(launched(LAYER))
        # One node more: nothing tells which of them has no call.
        made.replay([*launched(LAYER), ("elementwise", 4)])

    capture = attribute(open_traces([trace("run", program)]))
    found = operators(capture)
    assert [name for name, *_ in found[:3]] == ["aten::mm", "aten::add", "aten::mul"]
    assert [certain for *_, certain in found[:3]] == [False] * 3
    assert {name for name, *_ in found[3:]} == {None}


def test_the_graph_whose_sequence_fits_is_chosen(trace: Any) -> None:
    wide: list[Node] = [("gemm", 32, "aten::mm", WIDE_MM), *LAYER[1:]]

    def program(made: GraphTrace) -> None:
        made.capture(LAYER, named=True, label="capture_16_FULL")
        made.capture(wide, named=True, label="capture_128_FULL")
        made.replay(launched(wide))

    capture = attribute(open_traces([trace("run", program)]))
    assert operators(capture)[0] == ("aten::mm", WIDE_MM, True)
    (graph,) = analyze(capture).graphs
    assert graph.label == "capture_128_FULL"


def test_what_two_graphs_tell_differently_stays_unknown(trace: Any) -> None:
    # A library may pick one kernel and grid for both shapes.
    wide: list[Node] = [("gemm", 8, "aten::mm", WIDE_MM), *LAYER[1:]]

    def program(made: GraphTrace) -> None:
        made.capture(LAYER, named=True)
        made.capture(wide, named=True)
        made.replay(launched(LAYER))

    found = operators(attribute(open_traces([trace("run", program)])))
    assert found == [
        (None, None, None),
        ("aten::add", ADD, False),
        ("aten::mul", ADD, False),
    ]


def test_graphs_that_are_alike_leave_the_module_unknown(trace: Any) -> None:
    def program(made: GraphTrace) -> None:
        made.capture(LAYER, named=True)
        made.capture(LAYER, named=True)
        made.replay(launched(LAYER))

    read = open_traces([trace("run", program)])
    layer = pl.when(pl.col("op_id") < 3).then(pl.lit("layers.0")).otherwise(pl.lit("layers.1"))
    for same in (False, True):
        module = pl.lit("layers.0") if same else layer
        capture = attribute(replace(read, ops=read.ops.with_columns(module=module)))
        assert [name for name, *_ in operators(capture)] == ["aten::mm", "aten::add", "aten::mul"]
        owners = capture.kernels.select("op_id").join(capture.ops, on="op_id", how="left")
        assert owners["module"].to_list() == (["layers.0"] if same else [None]) * 3
        analysis = analyze(capture)
        assert [graph.told_by for graph in analysis.graphs] == ["capture"]
        assert analysis.step is not None
        assert sum(part.count for part in analysis.step.flops or ()) > 2 * 64 * 32 * 16


def test_branches_that_run_in_another_order_are_found_where_they_are_alike(trace: Any) -> None:
    nodes: list[Node] = [*LAYER, ("reduce", 2, "aten::sum", "[[64, 16]]"), *LAYER]
    order = [*launched(LAYER), *launched(LAYER), ("reduce", 2)]

    def program(made: GraphTrace) -> None:
        made.capture(nodes, named=True)
        made.replay(order)

    found = [name for name, *_ in operators(attribute(open_traces([trace("run", program)])))]
    assert found[-1] == "aten::sum"
    assert found[0] == found[3] == "aten::mm"


def test_another_trace_of_the_capture_is_a_partner_and_no_rank(trace: Any) -> None:
    capturing = trace("capture", lambda made: made.capture(LAYER, named=True), rank=0)
    replaying = trace("replay", lambda made: made.replay(launched(LAYER)), start_us=5_000, rank=0)
    for paths in ([capturing, replaying], [replaying, capturing]):
        capture = open_traces(paths)
        assert capture.manifest.ranks == (0,)
        assert capture.manifest.title == "replay"
        assert names(capture) == ["aten::mm", "aten::add", "aten::mul"]
        assert any("capture tells which" in text for text in capture.processes[0].warnings)
        (graph,) = analyze(capture).graphs
        assert (graph.file, graph.told_by) == ("capture", "capture")


def test_a_capture_of_another_rank_is_no_partner(trace: Any) -> None:
    capturing = trace("capture", lambda made: made.capture(LAYER, named=True), rank=1)
    replaying = trace("replay", lambda made: made.replay(launched(LAYER)), rank=0)
    assert open_traces([replaying, capturing]).manifest.ranks == (0, 1)


def test_a_folder_of_captures_beside_the_replay(trace: Any, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    wide: list[Node] = [("gemm", 32, "aten::mm", WIDE_MM), *LAYER[1:]]
    for name, nodes in (("bs_1_rank0", LAYER), ("bs_2_rank0", wide)):
        made = GraphTrace(rank=0)
        made.capture(nodes, named=True)
        made.write(folder / f"{name}.json.gz")
    replaying = trace("replay", lambda made: made.replay(launched(wide)), rank=0)
    capture = attribute(open_traces([folder, replaying]))
    assert capture.manifest.ranks == (0,)
    assert operators(capture)[0] == ("aten::mm", WIDE_MM, True)


def test_times_of_a_partner_that_overlap_are_moved_away(trace: Any) -> None:
    capturing = trace("capture", lambda made: made.capture(LAYER, named=True))
    # The same clock readings in both: the launch of the graph is within an operator's time.
    replaying = trace("replay", lambda made: made.replay(launched(LAYER)), start_us=1_011)
    capture = attribute(open_traces([capturing, replaying]))
    assert names(capture) == ["aten::mm", "aten::add", "aten::mul"]
    last_op_ns = capture.ops["end_ns"].to_numpy().max()
    assert last_op_ns < capture.launches["start_ns"].to_numpy().min()


def test_eager_steps_tell_operators_where_the_work_is_alike(trace: Any) -> None:
    def eager(made: GraphTrace) -> None:
        for index in range(3):
            with made.step(index):
                made.eager(LAYER)

    first = trace("eager", eager)
    replaying = trace("replay", lambda made: made.replay(launched(LAYER)), start_us=9_000)
    capture = attribute(open_traces([first, replaying]))
    assert capture.manifest.ranks == (0,)
    assert operators(capture) == [
        ("aten::mm", MM, True),
        ("aten::add", ADD, True),
        ("aten::mul", ADD, True),
    ]
    assert analyze(capture).graphs[0].told_by == "eager"


def test_eager_work_of_another_kind_stays_a_rank_of_its_own(trace: Any) -> None:
    other: list[Node] = [("gemm", 512, "aten::mm", WIDE_MM), ("softmax", 3, "aten::softmax", ADD)]
    first = trace("eager", lambda made: made.eager(other))
    replaying = trace("replay", lambda made: made.replay(launched(LAYER)), start_us=9_000)
    assert open_traces([first, replaying]).manifest.ranks == (0, 1)


def test_names_alone_must_fit_nearly_whole(trace: Any) -> None:
    """An eager prefill has many of the kernel names of a decode, at other shapes."""
    prefill: list[Node] = [("attention_prefill", 9, "flash", ADD), *LAYER[1:]]
    decode = [("attention_decode", 1), *launched(LAYER)[1:]]
    first = trace("eager", lambda made: made.eager(prefill))
    replaying = trace("replay", lambda made: made.replay(decode, sized=False), start_us=9_000)
    capture = open_traces([first, replaying])
    assert capture.manifest.ranks == (0, 1)


@pytest.mark.parametrize(
    ("around", "known"),
    [
        ("execute_32_context_0(sq0)_generation_32(sq32)", True),
        ("step[DECODE bs=32]", True),
        ("step[DECODE bs=24]", False),
        ("decode", True),
    ],
)
def test_without_grids_a_capture_for_another_batch_size_does_not_fit(
    trace: Any, around: str, known: bool
) -> None:
    def program(made: GraphTrace) -> None:
        made.capture(LAYER, named=True, label="capture_32_FULL")
        with made.range(around):
            made.replay(launched(LAYER), sized=False)

    found = names(open_traces([trace("run", program)]))
    assert found == (["aten::mm", "aten::add", "aten::mul"] if known else [None] * 3)


def test_a_replay_without_a_partner_is_one_group_with_advice_that_helps(trace: Any) -> None:
    analysis = analyze(open_traces([trace("replay", lambda made: made.replay(launched(LAYER)))]))
    assert [(point.name, point.detail) for point in analysis.ops] == [
        ("(no operator)", "replayed CUDA graphs")
    ]
    assert analysis.coverage.with_op == 0
    assert not any("ProfilerActivity.CPU" in text for text in analysis.warnings)
    (graph,) = analysis.graphs
    assert (graph.told_by, graph.pieces, graph.pieces_with_op) == ("", 3, 0)


def test_the_graph_of_a_recorded_block_counts_as_its_eager_run() -> None:
    eager = analyze(open_traces([DATA / "h100_block_infer_fp16.json.gz"]))
    paths = [DATA / "h100_block_infer_fp16.json.gz", DATA / "h100_block_cudagraph.json.gz"]
    replayed = analyze(open_traces(paths))
    assert replayed.coverage.with_op == pytest.approx(1)
    assert eager.step is not None
    assert replayed.step is not None
    assert replayed.step.flops == eager.step.flops
    assert replayed.step.total_bytes == eager.step.total_bytes
    assert replayed.utilization is not None
    assert eager.utilization is not None
    assert replayed.utilization.weight_bytes == eager.utilization.weight_bytes


@pytest.mark.parametrize(
    ("capture", "replay", "shares"),
    [
        ("vllm_graph_capture_full.pt.trace", "vllm_decode_full_graph", (0.031, 1.0)),
        ("sglang_graph_capture_bs32", "sglang_qwen3-8b_decode_graph", (0.011, 0.998)),
    ],
)
def test_public_decodes_have_operators_once_their_capture_is_given(
    capture: str, replay: str, shares: tuple[float, float]
) -> None:
    paths = [PUBLIC / f"tracelens_{name}.json.gz" for name in (capture, replay)]
    if not all(path.exists() for path in paths):
        pytest.skip("the public traces of ../shared are absent")
    found = (analyze(open_traces(paths[1:])), analyze(open_traces(paths)))
    assert [one.coverage.with_op for one in found] == pytest.approx(shares, abs=0.005)
    kernels = found[1].kernels
    assert sum(point.device_ns for point in kernels) == sum(p.device_ns for p in found[0].kernels)
    # By name alone: ROCm's replays have no grids.
    assert not any(graph.by_size for graph in found[1].graphs)


def test_captures_that_the_recording_cuts_off_have_no_nodes(trace: Any) -> None:
    def program(made: GraphTrace) -> None:
        made.capture(LAYER, named=True)
        made.events = [event for event in made.events if "EndCapture" not in event["name"]]
        made.replay(launched(LAYER))

    capture = open_traces([trace("run", program)])
    assert capture.graph_nodes.is_empty()


def test_work_launched_beside_a_capture_is_no_node(trace: Any) -> None:
    def program(made: GraphTrace) -> None:
        made.capture(LAYER, named=True)
        outside = dict(made.events[2])
        made.eager([("other", 1, "aten::relu", ADD)])
        launch = next(e for e in reversed(made.events) if e["name"] == "cudaLaunchKernel")
        launch["ts"], launch["tid"] = outside["ts"] + 1, 2

    capture = open_traces([trace("run", program)])
    assert capture.graph_nodes["name"].to_list() == ["gemm", "elementwise", "elementwise"]
    assert capture.graph_nodes.filter(pl.col("op_id").is_null()).is_empty()


def test_annotations_of_torch_name_the_groups_of_unknown_work(trace: Any) -> None:
    tool = pytest.importorskip("torch.cuda._annotate_cuda_graph_trace")

    def program(made: GraphTrace) -> None:
        made.replay(launched(LAYER))
        kernels = [event for event in made.events if event["cat"] == "kernel"]
        for number, event in enumerate(kernels):
            event["args"]["graph node id"] = number + 1
        merged = {"traceEvents": made.events}
        tool.annotate_trace(merged, {1: [{"name": "attention"}], 2: ["mlp"]})
        made.events = merged["traceEvents"]

    capture = open_traces([trace("replay", program)])
    assert capture.kernels["annotation"].to_list() == ["attention", "mlp", None]
    assert sorted(point.detail for point in analyze(capture).ops) == [
        "replayed CUDA graphs",
        "replayed CUDA graphs: attention",
        "replayed CUDA graphs: mlp",
    ]
