"""Captures of CUDA graphs in a session, with a class in place of torch's where there is no GPU."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from graph_traces import GraphTrace as WrittenTrace
from graph_traces import Node

from gpuprof.collectors import kineto
from gpuprof.collectors.captured_graph import CapturedGraph, GraphNode
from gpuprof.collectors.joining.captured_graphs import with_kernels
from gpuprof.collectors.live import graph_nodes, torch_trace
from gpuprof.collectors.live.graph_nodes import nodes_of_stream
from gpuprof.collectors.live.torch_trace import TorchTrace
from gpuprof.collectors.mangled_names import demangled
from gpuprof.collectors.manifest import ProcessInfo, Schedule
from gpuprof.collectors.schema import GRAPH_NODES
from gpuprof.profiler.run import graph_traces
from gpuprof.profiler.run.assemble import assemble
from gpuprof.profiler.run.first_look import FIRST_LOOK_STEPS
from gpuprof.profiler.run.observations import GraphTrace, Observations
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.recorded import Recorded, Subject
from gpuprof.profiler.run.session import Session
from gpuprof.profiler.run.session_options import SessionOptions
from gpuprof.roofline.analyze import analyze

MM = "[[64, 32], [32, 16]]"
ADD = "[[64, 16], [64, 16]]"
LAYER: list[Node] = [("gemm", 8, "aten::mm", MM), ("elementwise", 4, "aten::add", ADD)]
NODE = GraphNode("kernel", "gemm", (8, 1, 1), (128, 1, 1))


class Graph:
    """Captures nothing: what runs between the two calls runs."""

    fails = False

    def capture_begin(self, pool: object = None) -> None:
        if self.fails:
            raise RuntimeError("no capture")

    def capture_end(self) -> None:
        pass

    def replay(self) -> None:
        pass


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", type("CUDAGraph", (Graph,), dict(vars(Graph))))
    monkeypatch.setattr(graph_nodes, "nodes_being_captured", lambda: (NODE,))
    return torch.cuda.CUDAGraph()


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session(SessionOptions(schedule=Schedule(warmup=4, timed=2, profiled=2)))
    made.start()
    yield made
    made.finish()
    made.close()


def capture(graph: Any) -> None:
    graph.capture_begin(pool=None)
    torch.ones(4, 8) @ torch.ones(8, 2)
    graph.capture_end()


def look(session: Session) -> None:
    """Steps until the first look is over, and the warm-up is not."""
    for _ in range(FIRST_LOOK_STEPS):
        session.step(None)


def products(path: Path) -> int:
    return int((kineto.read(path).ops["name"] == "aten::mm").sum())


def test_a_capture_after_the_first_look_is_profiled_alone(graph: Any, session: Session) -> None:
    look(session)
    assert not torch_trace.own_profilers
    capture(graph)
    assert not torch_trace.own_profilers
    (trace,) = session.seen.graph_traces
    assert products(trace.path) == 1
    (seen,) = session.seen.graphs
    assert seen.nodes == (NODE,)
    assert seen.start_ns < seen.end_ns


def test_a_capture_within_the_first_look_is_in_its_trace(graph: Any, session: Session) -> None:
    capture(graph)
    assert session.seen.graph_traces == []
    look(session)
    (trace,) = session.seen.graph_traces
    assert trace.path.name == "first.json"
    assert products(trace.path) == 1


def test_a_first_look_with_a_capture_may_be_all_there_is(graph: Any, session: Session) -> None:
    """torch saves a trace only once."""
    capture(graph)
    look(session)
    seen = session.finish()
    assert seen.warnings == []
    assert seen.trace == seen.graph_traces[0].path
    assert seen.trace is not None
    assert products(seen.trace) == 1


def test_after_a_capture_among_the_timed_steps_they_are_timed_again(graph: Any) -> None:
    """Steps replay it from then on, and the profile of it took its time."""
    session = Session(SessionOptions(schedule=Schedule(warmup=3, timed=4, profiled=2)))
    session.start()
    for _ in range(6):
        session.step(None)
    capture(graph)
    for _ in range(8):
        session.step(None)
    seen = session.finish()
    assert [products(trace.path) for trace in seen.graph_traces] == [1]
    # The step with the capture is neither.
    assert [step.phase for step in seen.steps].count("timed") == 4
    assert seen.trace is not None
    session.close()


def test_captures_in_later_steps_are_left_alone(graph: Any) -> None:
    not_watched = torch.cuda.CUDAGraph.capture_begin
    session = Session(SessionOptions(schedule=Schedule(warmup=3, timed=2, profiled=2)))
    session.start()
    for _ in range(11):
        session.step(None)
    capture(graph)
    assert session.seen.graph_traces == []
    # Only the profiled steps can replay it.
    assert session.seen.graphs == []
    assert torch.cuda.CUDAGraph.capture_begin is not_watched
    session.finish()
    session.close()


def test_a_capture_that_does_not_begin_leaves_no_profile(graph: Any, session: Session) -> None:
    look(session)
    graph.fails = True
    with pytest.raises(RuntimeError, match="no capture"):
        graph.capture_begin()
    assert not torch_trace.own_profilers


def test_the_programs_own_profiler_ends_that_of_a_capture(graph: Any, session: Session) -> None:
    look(session)
    graph.capture_begin()
    with torch.autograd.profiler.profile():
        torch.ones(2) + 1
        assert not torch_trace.own_profilers
    graph.capture_end()
    capture(graph)
    assert len(session.seen.graph_traces) == 2


def test_no_more_time_goes_to_captures_than_is_meant_to(
    graph: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(session)
    monkeypatch.setattr(graph_traces, "_MOST_SECONDS", 1e-9)
    capture(graph)
    capture(graph)
    assert len(session.seen.graph_traces) == 1


def test_a_driver_that_fails_keeps_nothing_from_running(
    graph: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("no driver")

    monkeypatch.setattr(graph_nodes, "nodes_being_captured", fail)
    capture(graph)
    assert session.seen.graphs == []


def test_nothing_is_left_in_torchs_class(graph: Any) -> None:
    before = torch.cuda.CUDAGraph.capture_begin, torch.cuda.CUDAGraph.capture_end
    session = Session(SessionOptions(schedule=Schedule()))
    session.start()
    session.finish()
    session.close()
    assert (torch.cuda.CUDAGraph.capture_begin, torch.cuda.CUDAGraph.capture_end) == before


def test_a_run_gives_replays_the_operators_of_their_capture(tmp_path: Path) -> None:
    captured = WrittenTrace(start_us=1_700_000_000_000_000)
    captured.capture(LAYER)
    profiled = WrittenTrace(start_us=1_700_000_001_000_000)
    for _ in range(2):
        profiled.replay([(name, grid) for name, grid, *_ in LAYER])
    begun_ns = 1_700_000_000_000_000_000
    driver = CapturedGraph(
        begun_ns,
        begun_ns + 10**9,
        (NODE, GraphNode("kernel", "elementwise", (4, 1, 1), (128, 1, 1))),
    )
    for graphs, certain in (([driver], True), ([], False)):
        seen = Observations(
            begun_ns,
            [GraphTrace(captured.write(tmp_path / "graph-0.json"))],
            graphs,
            trace=profiled.write(tmp_path / "profiled.json"),
        )
        subject = Subject(CaptureOutput(Path("unused")), "t", "gpuprof run", command=())
        found = assemble(Recorded(subject, Ranks(3, 0, 4), seen, ProcessInfo(rank=3)))
        names = found.kernels.join(found.ops.select("op_id", op="name"), on="op_id", how="left")
        assert names["op"].to_list() == ["aten::mm", "aten::add"] * 2
        assert found.kernels["op_certain"].to_list() == [certain] * 4
        analysis = analyze(found)
        assert analysis.coverage.with_op == 1
        assert analysis.step is not None
        assert analysis.graphs[0].file is None
        counted = [part.count for part in analysis.step.flops or () if part.kind == "matmul"]
        assert counted == [2 * 2 * 64 * 32 * 16]


def test_kernels_of_the_driver_go_to_calls_of_the_same_kinds_only() -> None:
    rows = [
        {"graph": 0, "node": 0, "kind": "memset", "start_ns": 5},
        {"graph": 0, "node": 1, "kind": "kernel", "start_ns": 6},
    ]
    nodes = pl.DataFrame(rows, schema=GRAPH_NODES)
    told = CapturedGraph(0, 10, (GraphNode("memset"), NODE))
    assert with_kernels(nodes, [told])["name"].to_list() == [None, "gemm"]
    assert with_kernels(nodes, [told])["grid_x"].to_list() == [None, 8]
    others = [
        CapturedGraph(0, 10, (NODE, GraphNode("memset"))),
        CapturedGraph(0, 10, (NODE,)),
        CapturedGraph(6, 10, told.nodes),
    ]
    for other in others:
        assert with_kernels(nodes, [other]).equals(nodes)
    assert with_kernels(nodes, []).equals(nodes)


class Driver:
    """The functions of libcuda that are asked, for one graph of a memset, an event and a kernel."""

    status = 1
    types = (2, 7, 0)
    function, kern = 11, 0

    def cuStreamGetCaptureInfo_v2(self, _: Any, status: Any, *others: Any) -> int:
        status._obj.value = self.status
        return 0

    def cuGraphGetNodes(self, _: Any, nodes: Any, count: Any) -> int:
        if nodes is None:
            count._obj.value = len(self.types)
        else:
            nodes[:] = [place + 1 for place in range(len(self.types))]
        return 0

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:
        kind._obj.value = self.types[node.value - 1]
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node: Any, parameters: Any) -> int:
        assert node.value == 3
        parameters._obj.func = self.function
        parameters._obj.kern = self.kern
        parameters._obj.grid[:] = (8, 2, 1)
        parameters._obj.block[:] = (128, 1, 1)
        return 0

    def cuFuncGetName(self, name: Any, handle: Any) -> int:
        assert handle.value == self.function
        name._obj.value = b"_ZN2at4fillIiEEvT_"
        return 0

    def cuKernelGetName(self, name: Any, handle: Any) -> int:
        assert handle.value == self.kern
        name._obj.value = b"triton_poi_fused_0"
        return 0


def test_the_driver_tells_kinds_names_and_sizes_of_nodes() -> None:
    driver = Driver()
    sizes: Any = ((8, 2, 1), (128, 1, 1))
    expected = (GraphNode("memset"), GraphNode("kernel", "void at::fill<int>(int)", *sizes))
    assert nodes_of_stream(driver, 0) == expected
    driver.function, driver.kern = 0, 12
    assert nodes_of_stream(driver, 0) == (
        GraphNode("memset"),
        GraphNode("kernel", "triton_poi_fused_0", *sizes),
    )
    driver.status = 0
    assert nodes_of_stream(driver, 0) is None


def test_the_parameters_of_a_kernel_lie_as_in_cuda_h() -> None:
    """func, six unsigned, shared memory, padding, two pointers, kern, ctx: 72 bytes."""
    offsets = {
        name: getattr(graph_nodes._KernelParameters, name).offset
        for name, _ in graph_nodes._KernelParameters._fields_
    }
    assert offsets == {
        "func": 0,
        "grid": 8,
        "block": 20,
        "shared_memory": 32,
        "kernel_parameters": 40,
        "extra": 48,
        "kern": 56,
        "context": 64,
    }
    assert ctypes.sizeof(graph_nodes._KernelParameters) == 72


def test_names_that_are_not_mangled_stay_as_they_are() -> None:
    # "i" is a mangled name of the type int.
    assert [demangled(name) for name in ("i", "nvjet_sm90_hsh", "_ZN1x")] == [
        "i",
        "nvjet_sm90_hsh",
        "_ZN1x",
    ]


def test_a_first_look_does_not_end_within_a_capture(
    graph: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = session._first_look
    assert look is not None
    monkeypatch.setattr(graph_traces.cuda, "is_capturing_a_graph", lambda: True)
    look._over()
    assert look.running
    monkeypatch.setattr(graph_traces.cuda, "is_capturing_a_graph", lambda: False)
    look._over()
    assert not look.running
    assert isinstance(look._trace, TorchTrace)
