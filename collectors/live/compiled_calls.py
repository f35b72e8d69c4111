"""Runs of compiled graphs while a profile runs, and what each kernel in them is made of.

A profile names Triton kernels that inductor generated and the operators of libraries, and nothing
of C++ ones. So these are called within a record of their own while the profile runs. Which call in
the code of its graph a kernel in the profile is, its place among those of its name tells: a graph's
code has no branches.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

import msgspec
from torch import nn
from torch._C._profiler import _RecordFunctionFast

from gpuprof.collectors.live.dynamo_names import ModuleNames
from gpuprof.collectors.live.inductor_codegen import GeneratedCall, Origin, calls_of
from gpuprof.collectors.live.live_objects import live_objects
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.live.program_files import ProgramFiles
from gpuprof.collectors.live.replaced import replace
from gpuprof.collectors.live.traceback_text import places_of
from gpuprof.collectors.live.unix_clock import UnixClock
from gpuprof.collectors.live.unseen_by_compilers import hide_from_compilers
from gpuprof.collectors.stacks import frame_text

# What inductor calls the C++ kernels that it generates.
_CPP: Final = "cpp_fused_"
# Of a graph's run: thread, start and end by `perf_counter_ns`, the number of the graph.
_Run = tuple[int, int, int, int]


class CompiledCalls:
    """A `ProfileRecorder` of the runs of graphs whose code was generated in this process."""

    subject = "what generated kernels are made of"

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._runs: list[_Run] = []
        self._graphs: dict[int, tuple[GeneratedCall, ...]] = {}

    def start(self) -> None:
        """See `ProfileRecorder`."""
        self._runs, self._graphs = [], {}
        # Graphs whose run was under way at the start, and when that was.
        self._begun: list[tuple[object, int]] = []
        self._clock = UnixClock()
        output_code = sys.modules.get("torch._inductor.output_code")
        cache = sys.modules.get("torch._inductor.codecache")
        if output_code is None or cache is None:
            return
        self._watch_graphs(output_code.CompiledFxGraph)
        for module in cache.PyCodeCache.modules:
            self._record_kernels(module)

    def stop(self) -> Rows:
        """See `ProfileRecorder`. No rows of tables that are stored: they lead to `ops.origins`."""
        while self._undo:
            self._undo.pop()()
        # A profile of the capture of a CUDA graph begins and ends within a run.
        still = _running(self._code) if self._begun else []
        for compiled, start in self._begun:
            if any(each is compiled for each in still):
                self._ran(compiled, start, perf_counter_ns())
        if not self._graphs:
            return {}
        return {
            "compiled_runs": [
                {
                    "thread": thread,
                    "start_ns": self._clock.at_ns(start),
                    "end_ns": self._clock.at_ns(end),
                    "graph": graph,
                }
                for thread, start, end, graph in self._runs
            ],
            "compiled_calls": list(self._calls()),
        }

    def _watch_graphs(self, compiled_graph: Any) -> None:
        original = compiled_graph.__call__
        self._code = original.__code__
        now = perf_counter_ns()
        self._begun = [(each, now) for each in _running(self._code)]

        def call(compiled: Any, inputs: Any) -> Any:
            start = perf_counter_ns()
            try:
                return original(compiled, inputs)
            finally:
                self._ran(compiled, start, perf_counter_ns())

        hide_from_compilers(call, self._ran, calls_of)
        self._undo.append(replace(compiled_graph, __call__=call))

    def _ran(self, compiled: Any, start: int, end: int) -> None:
        calls = calls_of(compiled)
        if calls:
            # Numbers of calls are of the whole process, so the first one is the graph's too.
            graph = calls[0].number
            self._graphs[graph] = calls
            self._runs.append((threading.get_native_id(), start, end, graph))

    def _record_kernels(self, module: ModuleType) -> None:
        kernels = {
            name: _recorded(name, kernel)
            for name, kernel in vars(module).items()
            if name.startswith(_CPP) and callable(kernel)
        }
        if kernels:
            self._undo.append(replace(module, **kernels))

    def _calls(self) -> Iterator[dict[str, object]]:
        names = ModuleNames(live_objects(nn.Module))
        files = ProgramFiles()
        for graph, calls in self._graphs.items():
            for call in calls:
                for place, origin in enumerate(call.origins):
                    yield {
                        "graph": graph,
                        "call": call.number,
                        "kernel": call.kernel,
                        "origin": place,
                        **_described(origin, names, files),
                    }


def _running(method: CodeType) -> list[object]:
    """The objects whose `method` has not returned on this thread, the innermost first."""
    found = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is method:
            found.append(frame.f_locals[method.co_varnames[0]])
        frame = frame.f_back
    return found


def _recorded(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with _RecordFunctionFast(name, args):
            return kernel(*args)

    hide_from_compilers(run)
    return run


def _described(origin: Origin, names: ModuleNames, files: ProgramFiles) -> dict[str, object]:
    module = names.find(origin.modules)
    frames = places_of(origin.stack, files)
    own = [place for place in frames if place.own]
    found: dict[str, object] = {
        "operator": origin.operator,
        "backward": origin.backward,
        "of_self": module.of_self,
        "module": module.path,
        "stack": "\n".join(
            frame_text(each.file, each.line, each.function) for each in reversed(frames)
        ),
        "modules": msgspec.json.encode(module.candidates).decode(),
    }
    if own:
        innermost = own[-1]
        found |= {
            "file": innermost.file,
            "line": innermost.line,
            "function": innermost.function,
            "function_line": innermost.function_line,
        }
    return found
