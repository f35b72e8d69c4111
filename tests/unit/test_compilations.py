"""What torch.compile did: read from torch's own records after the fact."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gpuprof.collectors import host_events
from gpuprof.collectors.host_events import Compilation
from gpuprof.collectors.live import compilations
from gpuprof.collectors.live.compilations import CompilationTimes
from gpuprof.collectors.live.unix_clock import unix_ns

Compiled = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture
def compiled() -> Iterator[Compiled]:
    """A function that is compiled anew for each length and breaks its graph once."""
    import torch._dynamo

    torch._dynamo.reset()
    utilities = sys.modules["torch._dynamo.utils"]
    utilities.clear_compilation_metrics()
    utilities.graph_break_reasons.clear()
    utilities.counters.clear()

    @torch.compile(backend="eager", dynamic=False)
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y * 2

    yield broken
    torch._dynamo.reset()


def test_recompilations_have_their_guard_and_graph_breaks_their_line(compiled: Compiled) -> None:
    for length in (4, 5, 6):
        compiled(torch.ones(length))
    found = compilations.compilations()
    assert found is not None
    # Both halves of the function, once for each length.
    assert (found.compiled, found.recompiled, found.at_least) == (6, 4, False)
    assert found.compiling_ns > 0
    first, rest = found.recompilations
    assert (first.function, first.file, first.times) == ("broken", __file__, 2)
    assert rest.times == 2
    assert first.guard is not None
    assert "size mismatch at index 0. expected 4, actual 5" in first.guard
    (graph_break,) = found.breaks
    assert "graph_break" in graph_break.reason
    assert graph_break.file == __file__
    source = Path(__file__).read_text().splitlines()
    assert graph_break.line is not None
    assert source[graph_break.line - 1].strip() == "torch._dynamo.graph_break()"
    # As often as dynamo counts.
    assert graph_break.times == compilations.graph_breaks() == 3


def test_a_function_that_is_given_up_on_has_the_reason_and_the_line(compiled: Compiled) -> None:
    @torch.compile(backend="eager")
    def looping(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x.sin()
            torch._dynamo.graph_break()  # in the way
        return x

    looping(torch.ones(3))
    found = compilations.compilations()
    assert found is not None
    (given_up,) = found.given_up
    assert (given_up.function, given_up.file, given_up.times) == ("looping", __file__, 1)
    assert "graph_break" in given_up.reason or "loop" in given_up.reason
    assert given_up.line is not None
    assert found.breaks == ()


def test_a_backward_pass_has_the_name_of_its_forward(compiled: Compiled) -> None:
    @torch.compile(backend="aot_eager")
    def squared(x: torch.Tensor) -> torch.Tensor:
        return (x * x).sum()

    recorder = CompilationTimes()
    recorder.start()
    squared(torch.ones(3, requires_grad=True)).backward()
    events = [host_events.decode(str(row["host_event"])) for row in recorder.stop()["ranges"]]
    told = [(e.function, e.backward) for e in events if isinstance(e, Compilation)]
    assert ("squared", False) in told
    assert {name for name, _ in told} == {"squared"}


def test_each_compilation_of_a_profile_is_a_row_on_its_thread(compiled: Compiled) -> None:
    recorder = CompilationTimes()
    compiled(torch.ones(3))
    recorder.start()
    began_ns = unix_ns()
    threads: list[int] = []

    def elsewhere() -> None:
        threads.append(threading.get_native_id())
        compiled(torch.ones(4))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    compiled(torch.ones(5))
    ended_ns = unix_ns()
    rows = recorder.stop()["ranges"]
    compiled(torch.ones(6))
    assert [row["thread"] for row in rows] == [*threads * 2, *[threading.get_native_id()] * 2]
    assert rows[0]["name"] == "compile: broken"
    for row in rows:
        event = host_events.decode(str(row["host_event"]))
        assert isinstance(event, Compilation)
        assert (event.recompiled, event.backward, event.file) == (True, False, __file__)
        assert began_ns - 1000 <= int(str(row["start_ns"])) < int(str(row["end_ns"])) <= ended_ns
    # torch has its own list back, with all that was compiled meanwhile and since.
    utilities = sys.modules["torch._dynamo.utils"]
    assert type(utilities._compilation_metrics).__name__ == "deque"
    assert len(utilities.get_compilation_metrics()) == 8
    recorder.start()
    assert recorder.stop() == {"ranges": []}


def test_without_dynamo_nothing_is_known_and_nothing_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    recorder = CompilationTimes()
    recorder.start()
    assert recorder.stop() == {}
    assert compilations.compilations() is None
    assert compilations.graph_breaks() is None
    assert "torch._dynamo.utils" not in sys.modules


def of_torch_2_6(
    cache_size: int, name: str = "forward", *, guarded: bool = True
) -> SimpleNamespace:
    """Metrics as torch 2.6 has them, without the reason."""
    return SimpleNamespace(
        co_name=name,
        co_filename="/a/model.py",
        co_firstlineno=7,
        cache_size=cache_size,
        is_forward=None,
        fail_type=None,
        fail_reason=None,
        compile_id=None,
        has_guarded_code=guarded,
        is_runtime=False,
        start_time_us=10 * cache_size,
        end_time_us=10 * cache_size + 5,
    )


def test_torch_2_6_tells_reasons_of_a_function_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def code() -> None:
        pass

    key = code.__code__.replace(co_name="forward", co_filename="/a/model.py", co_firstlineno=7)
    # One reason at the first recompilation, two at the second, which two codes did not fit.
    reasons = ["0/0: L['n'] == 3", "0/1: L['n'] == 4", "0/0: L['n'] == 3"]
    utilities = SimpleNamespace(
        counters={"frames": {"ok": 3}, "graph_break": {}},
        graph_break_reasons=[],
        guard_failures={key: reasons},
        DEFAULT_COMPILATION_METRICS_LIMIT=64,
        get_compilation_metrics=lambda: [
            *(of_torch_2_6(cache_size) for cache_size in range(3)),
            of_torch_2_6(1, "other"),
        ],
    )
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utilities)
    found = compilations.compilations()
    assert found is not None
    assert (found.compiled, found.recompiled, found.compiling_ns) == (4, 3, 15_000)
    assert [(each.guard, each.times) for each in found.recompilations] == [
        ("L['n'] == 3", 2),
        (None, 1),
    ]


@pytest.mark.parametrize(
    ("left", "compiled", "unhandled", "told"),
    [
        # The loop that breaks is all there is: given up on, with or without a reason.
        (["forward"], 0, ["Tensor.item\nHint: no"], [("forward", "Tensor.item")]),
        (["forward"], 0, [], [("forward", None)]),
        (["forward", "loss"], 0, ["Tensor.item"], [("forward", None), ("loss", None)]),
        # One of several: the reason is of it. Without one it had nothing to compile.
        (["forward"], 2, ["Tensor.item"], [("forward", "Tensor.item")]),
        (["forward"], 2, [], []),
        (["forward", "loss"], 2, ["Tensor.item"], []),
    ],
)
def test_what_older_torch_leaves_alone_in_silence(
    monkeypatch: pytest.MonkeyPatch,
    left: list[str],
    compiled: int,
    unhandled: list[str],
    told: list[tuple[str, str | None]],
) -> None:
    metrics = [of_torch_2_6(0, name, guarded=False) for name in left]
    metrics += [of_torch_2_6(0, f"compiled{number}") for number in range(compiled)]
    utilities = SimpleNamespace(
        counters={
            "frames": {"total": 3},
            "graph_break": {},
            "unimplemented": dict.fromkeys(unhandled, 1),
        },
        graph_break_reasons=[],
        guard_failures={},
        DEFAULT_COMPILATION_METRICS_LIMIT=64,
        get_compilation_metrics=lambda: metrics,
    )
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utilities)
    found = compilations.compilations()
    assert found is not None
    assert [(each.function, each.reason) for each in found.given_up] == told
