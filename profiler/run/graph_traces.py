"""Traces of captures of CUDA graphs, for the operators of what replays them later.

While a graph is captured its operators run, with their shapes; while it is replayed none do. So
each capture before the profiled steps is profiled: by the first look where that runs, else alone.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from gpuprof.collectors.captured_graph import CapturedGraph
from gpuprof.collectors.live import cuda, graph_nodes, torch_trace
from gpuprof.collectors.live.profile_recorder import ProfileRecording, Rows
from gpuprof.collectors.live.replaced import replace
from gpuprof.collectors.live.script_errors import hiding_our_errors
from gpuprof.collectors.live.torch_trace import TorchTrace
from gpuprof.collectors.live.unix_clock import unix_ns
from gpuprof.profiler.run.observations import GraphTrace

# A serving engine captures a graph for each of many batch sizes. What is profiled alone costs its
# program about 0.1 s each, and that no more than this.
_MOST_SECONDS: Final = 10.0
# Before it, CUPTI does not live with being attached again beside graphs
# (torch/profiler/profiler.py, on lazy re-initialisation).
_ATTACHED_AGAIN_SINCE: Final = (12, 6)
# inductor imports it where it compiles for CUDA graphs (torch/_inductor/compile_fx.py).
_CUDA_GRAPH_TREES: Final = "torch._inductor.cudagraph_trees"


class GraphTraces:
    """Watches `torch.cuda.CUDAGraph`'s captures."""

    def __init__(self, beside: ProfileRecording, begins: Callable[[], bool]) -> None:
        """`begins` is told of each capture that could be profiled alone, and says whether it is."""
        # Of captures that were profiled alone.
        self.traces: list[GraphTrace] = []
        # Of all captures.
        self.graphs: list[CapturedGraph] = []
        self._folder = Path()
        self._beside = beside
        self._begins = begins
        self._trace: TorchTrace | None = None
        self._begun_ns: dict[int, int] = {}
        self._spent_s = 0.0
        # Whether one ended while another profile of ours ran.
        self._within_first_look = False
        self._watches = False
        self._undo: Callable[[], None] | None = None
        self._process = os.getpid()

    @contextmanager
    def watching(self, folder: Path) -> Iterator[None]:
        """Watch within this context, or until `end`; traces go to `folder`."""
        self._folder = folder
        graphs: Any = torch.cuda.CUDAGraph
        begin, end = graphs.capture_begin, graphs.capture_end

        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._before(graph)
            try:
                return begin(graph, *args, **kwargs)
            except BaseException:
                self.stop()
                raise

        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._ending(graph)
            try:
                return end(graph, *args, **kwargs)
            finally:
                self.stop()

        self._undo = replace(graphs, capture_begin=capture_begin, capture_end=capture_end)
        self._watches = True
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Watch no longer: what is captured after the profiled steps is replayed in none of them.

        A program may capture graphs as long as it runs, and each would be kept.
        """
        self._watches = False
        if self._undo is not None:
            self._undo()
            self._undo = None

    def first_look_ended(
        self,
        export: Callable[[], Path | None],
        beside: Rows,
    ) -> None:
        """Keep the first look's trace where a graph was captured in it."""
        if self._within_first_look and (path := export()) is not None:
            self.traces.append(GraphTrace(path, beside))
        self._within_first_look = False

    def stop(self) -> None:
        """End a profile of a capture, if one runs and on the thread that began it."""
        trace = self._trace
        if trace is None or not trace.can_stop_here:
            return
        self._trace = None
        begun_s = time.perf_counter()
        with hiding_our_errors():
            trace.stop()
        rows: Rows = self._beside.stop()
        with hiding_our_errors():
            self.traces.append(GraphTrace(trace.export(), rows))
        self._spent_s += time.perf_counter() - begun_s

    def _before(self, graph: Any) -> None:
        self._begun_ns[id(graph)] = unix_ns()
        if not (self._may_profile() and self._begins()):
            return
        begun_s = time.perf_counter()
        trace = TorchTrace(self._folder / f"graph-{len(self.traces)}.json", steps=None)
        with hiding_our_errors():
            self._beside.start()
            trace.start()
            self._trace = trace
        if self._trace is None:
            self._beside.stop()
        self._spent_s += time.perf_counter() - begun_s

    def _may_profile(self) -> bool:
        version = torch.version.cuda
        return (
            self._watches
            and os.getpid() == self._process
            and self._trace is None
            and not torch_trace.own_profilers
            and not torch_trace.script_is_profiling()
            and self._spent_s < _MOST_SECONDS
            and (version is None or _numbers(version) >= _ATTACHED_AGAIN_SINCE)
            and not cuda.is_capturing_a_graph()
        )

    def _ending(self, graph: Any) -> None:
        begun_ns = self._begun_ns.pop(id(graph), None)
        if begun_ns is None or not self._watches:
            return
        with hiding_our_errors():
            nodes = graph_nodes.nodes_being_captured()
            if nodes is not None:
                self.graphs.append(CapturedGraph(begun_ns, unix_ns(), nodes))
        if self._trace is None and torch_trace.own_profilers:
            self._within_first_look = True


def compiles_into_graphs() -> bool:
    """Whether torch.compile will capture what it compiled as CUDA graphs.

    It does so in a second run, and wants a profile of its own: in one that holds the compilation
    too, operators of the graphs had no lines on an H200 (torch 2.11).
    """
    return _CUDA_GRAPH_TREES in sys.modules


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
