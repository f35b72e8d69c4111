"""Runs of compiled graphs that a profile sees in part: inductor is a stand-in here."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gpuprof.collectors.live import compiled_calls
from gpuprof.collectors.live.compiled_calls import CompiledCalls
from gpuprof.collectors.live.inductor_codegen import GeneratedCall, Origin
from gpuprof.collectors.live.unix_clock import unix_ns

UP = Origin("aten::mm", "", (), backward=False)


class CompiledGraph:
    """As inductor's: called with a list of inputs."""

    def __init__(self, number: int) -> None:
        self.calls = (GeneratedCall(number, "aten::mm", (UP,)),)

    def __call__(self, inputs: list[Any]) -> Any:
        return inputs.pop()()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> CompiledCalls:
    """With `CompiledGraph` as what inductor makes."""
    output_code = SimpleNamespace(CompiledFxGraph=CompiledGraph)
    cache = SimpleNamespace(PyCodeCache=SimpleNamespace(modules=[]))
    monkeypatch.setitem(sys.modules, "torch._inductor.output_code", output_code)
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", cache)
    monkeypatch.setattr(compiled_calls, "calls_of", lambda compiled: compiled.calls)
    return CompiledCalls()


def test_a_profile_within_a_run_has_the_part_that_it_saw(recorder: CompiledCalls) -> None:
    """As that of the capture of a CUDA graph: CUDA graph trees capture within a graph's run."""
    seen: list[Any] = []

    def capture() -> None:
        begun_ns = unix_ns()
        recorder.start()
        rows = recorder.stop()
        seen.append((begun_ns, rows, unix_ns()))

    # Another graph that ran before has nothing to do with it.
    CompiledGraph(3)([lambda: None])
    CompiledGraph(7)([capture])
    ((begun_ns, rows, ended_ns),) = seen
    (run,) = rows["compiled_runs"]
    assert (run["thread"], run["graph"]) == (threading.get_native_id(), 7)
    assert begun_ns <= run["start_ns"] <= run["end_ns"] <= ended_ns
    (call,) = rows["compiled_calls"]
    assert (call["graph"], call["kernel"], call["operator"]) == (7, "aten::mm", "aten::mm")


def test_a_run_that_the_profile_saw_the_end_of_tells_nothing(recorder: CompiledCalls) -> None:
    """Where it ended is not known; what runs within it is."""

    def inner() -> None:
        recorder.start()
        CompiledGraph(2)([lambda: None])

    CompiledGraph(1)([inner])
    assert [run["graph"] for run in recorder.stop()["compiled_runs"]] == [2]
    recorder.start()
    assert recorder.stop() == {}
