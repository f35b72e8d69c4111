"""A session in this process: its phases, what it keeps, and that nothing of it stays behind."""

import dataclasses
import gc
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
import torch
from module_hooks import has_global_hooks
from torch.optim.optimizer import _global_optimizer_post_hooks

from gpuprof.collectors import kineto
from gpuprof.collectors.live import nvtx_ranges, torch_trace, unix_clock
from gpuprof.collectors.manifest import ProcessInfo, Schedule
from gpuprof.collectors.steps import watched
from gpuprof.collectors.steps.clock import StepClock
from gpuprof.collectors.steps.step_time import StepTime
from gpuprof.profiler.run import current_session, timed_steps
from gpuprof.profiler.run import first_look as first_look_module
from gpuprof.profiler.run import session as session_module
from gpuprof.profiler.run.assemble import assemble
from gpuprof.profiler.run.observations import Observations
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.recorded import Recorded, Subject
from gpuprof.profiler.run.session import Session
from gpuprof.profiler.run.session_options import SessionOptions, StopAfterSteps

X = torch.ones(2, 4)
SGD = "optimizer steps (SGD)"


class Training:
    """A model and its optimizer."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.optimizer.zero_grad()
            self.model(X).sum().backward()
            self.optimizer.step()


Start = Callable[..., Session]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a session of 2 warm-up, 2 timed and 2 profiled steps; closed after the test."""
    started = []
    # Another test of this process may have compiled something.
    monkeypatch.delitem(sys.modules, "torch._inductor.cudagraph_trees", raising=False)

    def make(*, on_profiled: Callable[[Session], None] = lambda _: None, **options: Any) -> Session:
        # A first look's trace holds references until it is collected.
        gc.collect()
        options = {"schedule": Schedule(warmup=2, timed=2, profiled=2), **options}
        session = Session(SessionOptions(**options), on_profiled=on_profiled)
        session.start()
        started.append(session)
        return session

    yield make
    for session in started:
        session.finish()
        session.close()


def phases(seen: Observations) -> list[str]:
    return [step.phase for step in seen.steps]


def recorded(seen: Observations) -> Recorded:
    subject = Subject(CaptureOutput(Path("unused")), title="t", source="test", command=())
    return Recorded(subject, Ranks(0, 0, 1), seen, ProcessInfo())


def operators(seen: Observations) -> set[str]:
    """Names of the operators in the trace."""
    assert seen.trace is not None
    return set(kineto.read(seen.trace).ops["name"])


def test_counters_that_were_asked_for_and_never_read_are_missed(start: Start) -> None:
    asked = start(pm_sampling=True, first_look=False)
    Training().step(10)
    assert asked.finish().warnings == [
        "--pm-sampling counted nothing: no GPU worked in a profiled step"
    ]


def test_a_gpu_s_queue_is_emptied_before_the_recording_and_never_in_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied: list[int] = []
    session = start()
    training = Training()
    training.step(3)
    # From here on as on a GPU, but for the events that time steps there.
    monkeypatch.setattr(session_module.cuda, "in_use", lambda: True)
    monkeypatch.setattr(session_module.cuda, "is_capturing_a_graph", lambda: False)
    step = 4
    monkeypatch.setattr(session_module.cuda, "synchronize", lambda: emptied.append(step))
    while step < 12:
        training.step()
        step += 1

    # Before the profiler starts, and at the end of the step that warms it up.
    assert emptied == [4, 5]
    assert phases(session.seen)[-2:] == ["profiled", "profiled"]


def test_steps_are_warmed_up_then_timed_then_profiled(start: Start) -> None:
    finished = []
    session = start(on_profiled=finished.append)
    training = Training()
    training.step(6)
    assert finished == []
    # The step that warms the profiler up is not kept; the rest of the script is not watched.
    training.step(10)
    assert finished == [session]
    seen = session.finish()
    assert phases(seen) == ["warmup"] + ["timed"] * 2 + ["profiled"] * 2
    assert (seen.found_by, seen.warnings, seen.first_look_steps) == (SGD, [], [])
    assert {"aten::addmm", "Optimizer.step#SGD.step"} & operators(seen) == {"aten::addmm"}
    for earlier, later in zip(seen.steps, seen.steps[1:], strict=False):
        assert earlier.end_ns <= later.start_ns


def test_the_timed_steps_run_without_a_profiler(start: Start) -> None:
    start()
    training = Training()
    profiled = []
    for _ in range(8):
        training.step()
        profiled.append(torch._C._autograd._profiler_enabled())
    # After each step: the first look ends with the warm-up; the profiler warms up in the fifth.
    assert profiled == [True, False, False, False, True, True, False, False]


def test_the_first_look_ends_before_compiled_work_is_captured_as_a_graph(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    training = Training()
    monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", ModuleType("trees"))
    training.step()
    assert not torch._C._autograd._profiler_enabled()


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_script_that_ends_early_has_its_second_step_or_its_only_one(
    start: Start, steps: int
) -> None:
    session = start()
    training, ended_ns = Training(), []
    for _ in range(steps):
        training.step()
        ended_ns.append(time.time_ns())
    seen = session.finish()
    assert len(seen.first_look_steps) == 1
    assert "aten::addmm" in operators(seen)
    capture = assemble(recorded(seen))
    assert capture.steps["phase"].to_list().count("profiled") == 1
    assert capture.kernels["step"].drop_nulls().n_unique() == 1
    ((_, end_ns),) = seen.first_look_steps
    assert end_ns <= ended_ns[0] if steps == 1 else ended_ns[0] < end_ns <= ended_ns[1]


@pytest.mark.parametrize(("steps", "kept"), [(1, 1), (2, 1), (3, 2), (5, 2)])
def test_a_first_look_of_three_steps_keeps_those_after_the_first(
    start: Start, steps: int, kept: int
) -> None:
    session = start(schedule=Schedule(warmup=3, timed=2, profiled=2))
    training, began_ns, ended_ns = Training(), time.time_ns(), []
    for _ in range(steps):
        training.step()
        ended_ns.append(time.time_ns())
    seen = session.finish()
    looks = seen.first_look_steps
    assert len(looks) == kept
    # Each ends within the call that made it, the last one in the last of the three.
    calls = list(pairwise([began_ns, *ended_ns[:3]]))
    for (_, end_ns), (earlier_ns, later_ns) in zip(looks, calls[-kept:], strict=True):
        assert earlier_ns < end_ns <= later_ns
    capture = assemble(recorded(seen))
    assert capture.steps["phase"].to_list().count("profiled") == kept
    assert capture.steps["phase"].to_list().count("timed") == max(0, steps - 3)
    products = capture.kernels.filter(pl.col("name") == "aten::addmm")
    assert products["step"].drop_nulls().n_unique() == kept


def test_a_trace_that_one_thread_writes_is_not_freed_by_a_step_of_another(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start(first_look=False)
    writes, others_stepped = threading.Event(), threading.Event()
    export = torch_trace.TorchTrace.export
    written: list[bool] = []

    def slow_export(trace: torch_trace.TorchTrace) -> Path:
        writes.set()
        assert others_stepped.wait(60)
        written.append(trace._profiler.profiler is not None)
        return export(trace)

    monkeypatch.setattr(torch_trace.TorchTrace, "export", slow_export)

    def steps() -> None:
        for _ in range(9):
            torch.ones(2) + 1
            session.step(None)

    first = threading.Thread(target=steps)
    first.start()
    assert writes.wait(60)
    # As a pool does that serves a model: it neither waits nor ends what is under way.
    session.step(None)
    session.step(None)
    others_stepped.set()
    first.join()
    seen = session.finish()
    assert (written, seen.warnings) == ([True], [])
    assert "aten::add" in operators(seen)


def accumulated(steps: int, calls: int) -> None:
    """Steps of several passes each."""
    training = Training()
    for _ in range(steps):
        for _ in range(calls):
            training.model(torch.ones(2, 4)).sum().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()


def test_the_first_look_holds_all_passes_of_an_accumulated_step(start: Start) -> None:
    session = start()
    accumulated(steps=4, calls=3)
    seen = session.finish()
    capture = assemble(recorded(seen))
    assert capture.steps["phase"].to_list().count("profiled") == 1
    products = capture.kernels.filter(pl.col("name") == "aten::addmm")
    assert products["step"].drop_nulls().len() == 3
    assert phases(seen).count("timed") == 2


def test_a_loop_of_passes_without_an_optimizers_step_is_a_step_a_pass(start: Start) -> None:
    session = start()
    training = Training()
    for _ in range(5):
        training.model(torch.ones(2, 4)).sum().backward()
    seen = session.finish()
    capture = assemble(recorded(seen))
    profiled = capture.steps.filter(pl.col("phase") == "profiled")
    products = capture.kernels.filter(pl.col("name") == "aten::addmm")
    # The first pass has the set-up in it, and the call after the last mark is complete for nobody.
    assert profiled["index"].to_list() == [1, 2, 3]
    assert sorted(products["step"].drop_nulls()) == profiled["index"].to_list()
    assert not set(phases(seen)) - {"warmup"}


def test_a_first_look_that_ended_within_the_first_step_is_none(start: Start) -> None:
    session = start()
    training = Training()
    training.model(torch.ones(2, 4)).sum().backward()
    session._first_look_is_over()
    training.step(4)
    seen = session.finish()
    assert phases(seen).count("timed") == 2
    assert seen.trace is None
    assert [warning for warning in seen.warnings if "ended before the step did" in warning]
    assert not assemble(recorded(seen)).steps["phase"].is_in(["profiled"]).any()


class _Ends(torch.utils._python_dispatch.TorchDispatchMode):
    """Asks for the end of the first look within the first operator."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.running: list[bool] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        look = self.session._first_look
        assert look is not None
        look._over()
        self.running.append(look.running)
        return function(*args, **(kwargs or {}))


def test_a_first_look_does_not_end_within_an_operator_or_a_backward_pass(start: Start) -> None:
    """torch's profiler would take the process with it."""
    session = start()
    look = session._first_look
    assert look is not None
    with _Ends(session) as mode:
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert mode.running
    assert all(mode.running)

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            look._over()
            assert look.running
            return gradient

    Backward.apply(product.requires_grad_()).sum().backward()
    ended = []

    class Model(torch.nn.Module):
        def forward(self) -> None:
            look._over()
            ended.append(not look.running)

    Model()()
    assert ended == [True]


def test_a_first_look_at_marks_that_were_no_steps_is_none(start: Start) -> None:
    session = start()
    training = Training()
    training.step()
    for _ in range(4):
        training.step()
        # Said later than the optimizer's first step, these are the steps all the same.
        session.step(None)
    seen = session.finish()
    assert seen.found_by != SGD
    assert seen.trace is None
    assert [warning for warning in seen.warnings if "ended before the step did" in warning]


def test_profiled_steps_that_were_not_all_reached_are_kept(start: Start) -> None:
    session = start()
    Training().step(6)
    seen = session.finish()
    assert not seen.first_look_steps
    assert phases(seen).count("profiled") == 1


def test_a_script_without_steps_is_seen_whole(start: Start) -> None:
    session = start()
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    seen = session.finish()
    assert (seen.found_by, phases(seen), len(seen.first_look_steps)) == (None, [], 1)
    assert "aten::mm" in operators(seen)


def bare_loop(passes: int) -> None:
    """Train without an optimizer or a module, as a loop by hand does."""
    weight = torch.ones(4, 4, requires_grad=True)
    for _ in range(passes):
        (X @ weight).square().mean().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
            weight.grad = None


@pytest.mark.parametrize(
    ("passes", "options", "told"),
    [(3, {}, True), (1, {}, False), (0, {}, False), (3, {"steps": "script"}, False)],
)
def test_a_loop_with_a_bare_backward_is_told_of_the_step_mark(
    start: Start, passes: int, options: dict[str, Any], told: bool
) -> None:
    session = start(**options)
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    bare_loop(passes)
    warnings = assemble(recorded(session.finish())).processes[0].warnings
    assert [f"{passes} backward passes ran: call gpuprof.step()" in one for one in warnings] == (
        [True] if told else []
    )


def test_without_steps_only_the_first_seconds_are_profiled(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_look_module, "FIRST_LOOK_SECONDS", 0.01)
    session = start()
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    while torch._C._autograd._profiler_enabled():
        time.sleep(0.001)
    torch.addmm(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2))
    seen = session.finish()
    assert {"aten::mm", "aten::addmm"} & operators(seen) == {"aten::mm"}
    assert "no step was marked" in seen.warnings[0]


def test_steps_that_are_marked_later_restart_the_count(start: Start) -> None:
    session = start()
    training = Training()
    training.step(4)
    assert phases(session.seen) == ["warmup"] + ["timed"] * 2
    for _ in range(9):
        training.step(2)
        session.explicit.step(tokens=96)
    seen = session.finish()
    assert seen.found_by == "gpuprof.step() calls"
    assert phases(seen) == ["warmup"] + ["timed"] * 2 + ["profiled"] * 2
    assert {step.tokens for step in seen.steps} == {96}


@pytest.mark.parametrize(
    ("warmup", "timed", "profiled", "expected"),
    [
        (0, 0, 1, ["profiled"]),
        (0, 3, 0, ["timed"] * 3),
        (1, 0, 0, []),
        (3, 1, 1, ["warmup"] * 2 + ["timed", "profiled"]),
    ],
)
def test_any_schedule_is_kept(
    start: Start, warmup: int, timed: int, profiled: int, expected: list[str]
) -> None:
    session = start(schedule=Schedule(warmup=warmup, timed=timed, profiled=profiled))
    Training().step(9)
    assert phases(session.finish()) == expected


def test_stop_after_ends_the_script_when_the_steps_are_done(start: Start) -> None:
    session = start(stop_after=True)
    training = Training()
    training.step(6)
    with pytest.raises(StopAfterSteps):
        training.step()
    assert phases(session.finish()).count("profiled") == 2


def test_a_failure_of_ours_does_not_reach_the_script(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start()
    training = Training()
    training.step(2)

    def fail(*_: object) -> None:
        raise RuntimeError("the clock broke")

    monkeypatch.setattr(session_module.StepClock, "boundary", fail)
    training.step(9)
    seen = session.finish()
    assert seen.warnings == ["profiling ended early: RuntimeError: the clock broke"]
    assert len(seen.first_look_steps) == 1


def test_a_profiler_of_the_scripts_own_takes_the_profiled_steps(start: Start) -> None:
    session = start()
    training = Training()
    training.step(5)
    with torch.profiler.profile() as theirs:
        training.step(4)
    assert any(event.key == "aten::addmm" for event in theirs.key_averages())
    seen = session.finish()
    assert phases(seen) == ["warmup"] + ["timed"] * 2
    assert "so they were dropped" in seen.warnings[0]
    # What the first look saw is there to show.
    assert len(seen.first_look_steps) == 1
    assert "aten::addmm" in operators(seen)


def test_after_a_profiler_of_the_scripts_own_later_steps_are_profiled(start: Start) -> None:
    finished: list[Session] = []
    session = start(on_profiled=finished.append)
    training = Training()
    training.step(5)
    with torch.profiler.profile():
        training.step(4)
    assert finished == []
    training.step(9)
    assert finished == [session]
    seen = session.finish()
    assert phases(seen) == ["warmup"] + ["timed"] * 2 + ["profiled"] * 2
    assert not seen.first_look_steps
    assert [warning for warning in seen.warnings if "so later ones were profiled" in warning]


def test_steps_that_were_profiled_before_the_script_profiles_itself_are_kept(start: Start) -> None:
    finished: list[Session] = []
    session = start(on_profiled=finished.append)
    training = Training()
    training.step(6)
    with torch.profiler.profile() as theirs:
        training.step(4)
    assert any(event.key == "aten::addmm" for event in theirs.key_averages())
    assert finished == [session]
    training.step(9)
    seen = session.finish()
    assert phases(seen) == ["warmup"] + ["timed"] * 2 + ["profiled"]
    assert not seen.first_look_steps
    assert "aten::addmm" in operators(seen)
    assert any("so 1 of 2 were profiled" in warning for warning in seen.warnings)


def test_a_script_that_profiles_again_and_again_has_its_first_step(start: Start) -> None:
    finished: list[Session] = []
    session = start(on_profiled=finished.append)
    training = Training()
    training.step(5)
    for _ in range(3):
        with torch.profiler.profile():
            training.step()
        # The last of these begins to profile, and does not come to the end.
        training.step(2)
    assert finished == [session]
    assert len(session.seen.first_look_steps) == 1
    assert "aten::addmm" in operators(session.finish())


def test_steps_during_which_the_clock_is_set_are_profiled_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start()
    training = Training()
    training.step(6)
    back_ns = 3600 * 10**9
    read = unix_clock.unix_ns
    monkeypatch.setattr(unix_clock, "unix_ns", lambda: read() - back_ns)
    training.step(9)
    seen = session.finish()
    assert phases(seen) == ["warmup"] + ["timed"] * 2 + ["profiled"] * 2
    first, last = seen.steps[0], seen.steps[-1]
    assert -back_ns < last.start_ns - first.start_ns < 0
    assert any("so later ones were profiled" in warning for warning in seen.warnings)
    assert any("set back by 3600 s" in warning for warning in seen.warnings)


def test_a_script_that_stops_the_clock_of_python_does_not_stop_ours(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start()
    training = Training()
    training.step(2)
    for name in ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic_ns"):
        monkeypatch.setattr(time, name, lambda: 0)
    training.step(9)
    seen = session.finish()
    assert phases(seen).count("profiled") == 2
    assert all(step.start_ns < step.end_ns and step.host_ns > 0 for step in seen.steps)
    assert seen.warnings == []


def test_steps_under_a_profiler_of_the_script_are_not_timed(start: Start) -> None:
    session = start()
    training = Training()
    training.step(2)
    with torch.profiler.profile():
        training.step(4)
    training.step(9)
    seen = session.finish()
    assert phases(seen) == ["warmup"] + ["timed"] * 2 + ["profiled"] * 2
    assert "steps under it were not timed" in seen.warnings[0]


def test_a_forked_child_watches_and_writes_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start()
    training = Training()
    training.step(2)
    before = phases(session.seen)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: session._process + 1)
        assert not session.active
        training.step(9)
        assert session.finish() is session.seen
        session.close()
    assert phases(session.seen) == before
    assert session._folder.is_dir()


def test_nothing_of_a_session_stays_behind() -> None:
    patched: Any = (torch.profiler.profile, torch.autograd.profiler.profile)
    before = [patched[0].prepare_trace, patched[1].__enter__, patched[0].step]
    session = Session(SessionOptions(schedule=Schedule(warmup=1, timed=1, profiled=1)))
    session.start()
    assert current_session.current is session
    training = Training()
    training.step(7)
    folder = session._folder
    assert folder.is_dir()
    seen = session.finish()
    session.close()
    assert seen.trace is not None
    assert current_session.current is None
    assert not folder.exists()
    assert [patched[0].prepare_trace, patched[1].__enter__, patched[0].step] == before
    assert "prepare_trace" not in vars(patched[0])
    assert not torch_trace.own_profilers
    assert not torch._C._autograd._profiler_enabled()
    assert nvtx_ranges.take_recorded() == []
    assert torch.nn.Module._compiled_call_impl is None
    assert not has_global_hooks()
    assert not _global_optimizer_post_hooks
    assert not training.optimizer._optimizer_step_post_hooks
    for module in training.model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_a_trace_that_cannot_be_read_leaves_the_step_times(start: Start, tmp_path: Path) -> None:
    session = start()
    Training().step(9)
    seen = session.finish()
    assert seen.trace is not None
    seen.trace.write_text("{")
    capture = assemble(recorded(seen))
    assert capture.steps["phase"].to_list().count("timed") == 2
    assert any(line.startswith("nothing was profiled: ") for line in capture.processes[0].warnings)


def test_after_the_profiled_steps_one_mark_a_step_stays(start: Start) -> None:
    session = start()
    training = Training()
    training.step(7 + 25)
    seen = session.finish()
    assert phases(seen) == ["warmup"] + ["timed"] * 2 + ["profiled"] * 2
    later = seen.later_steps
    assert later is not None
    # The first mark after the profiled steps begins the first of them.
    assert later.block_steps * len(later.blocks_ns) == 24


@pytest.mark.parametrize(("watch", "most_bytes"), [(False, 20_000), (True, 400_000)])
def test_a_long_run_takes_no_more_memory(
    start: Start, monkeypatch: pytest.MonkeyPatch, watch: bool, most_bytes: int
) -> None:
    # A mark at each of these steps, though they are short. Kept, each would take 370 bytes.
    monkeypatch.setattr(watched, "_MOST_COST", 1.0)
    session = start(steps="explicit", watch=watch)

    def steps(count: int) -> int:
        for _ in range(count):
            X.sum()
            session.step(None)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    steps(2000)
    tracemalloc.start()
    try:
        before = steps(10)
        assert steps(4000) - before < most_bytes
    finally:
        tracemalloc.stop()


def test_what_was_recorded_is_freed_once_it_is_a_file(start: Start) -> None:
    def held() -> int:
        return sum(type(one) is torch.autograd.profiler.profile for one in gc.get_objects())

    gc.collect()
    before = held()
    gc.disable()
    try:
        session = start()
        training = Training()
        training.step(3)
        assert held() > before
        training.step(5)
        assert session.seen.trace is not None
        assert held() == before
    finally:
        gc.enable()


def test_a_script_that_ends_with_its_profiled_steps_has_no_later_ones(start: Start) -> None:
    session = start()
    Training().step(7)
    assert session.finish().later_steps is None


class DeviceClock:
    """As on a GPU: each step of the device takes 10 ms, and its events say when."""

    def __init__(self, session: Session, step_ns: int = 10_000_000) -> None:
        self.session, self.step_ns, self.steps = session, step_ns, 0

    def timed(self) -> Callable[..., Any]:
        owner = self

        class Clock(StepClock):
            def boundary(self, tokens: int | None = None) -> None:
                super().boundary(tokens)
                self.begun = getattr(self, "begun", owner.steps)

            def read(self) -> list[StepTime]:
                base = owner.session.seen.started_ns
                return [
                    dataclasses.replace(
                        step,
                        device_ns=owner.step_ns,
                        device_start_ns=base + (self.begun + index) * owner.step_ns,
                    )
                    for index, step in enumerate(super().read())
                ]

        return lambda phase, *, device_events: Clock(phase, device_events=False)


def settled_run(
    start: Start, monkeypatch: pytest.MonkeyPatch, steps: int
) -> tuple[Observations, list[int]]:
    """A run on a device that settles for 100 ms; and when its timed steps began, in ms."""
    schedule = Schedule(warmup=2, timed=4, profiled=2, settling_ns=100_000_000)
    session = start(schedule=schedule)
    device = DeviceClock(session)
    monkeypatch.setattr(timed_steps, "StepClock", device.timed())
    training = Training()
    for _ in range(steps):
        training.step()
        device.steps += 1
    seen = session.finish()
    base = seen.started_ns
    starts = [
        round(((step.device_start_ns or 0) - base) / 1e6)
        for step in seen.steps
        if step.phase == "timed"
    ]
    return seen, starts


def test_timed_steps_are_those_that_began_after_the_device_had_settled(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, starts = settled_run(start, monkeypatch, 40)
    assert len(starts) == 4
    # Ten steps of 10 ms after the first timed one.
    assert phases(seen).count("warmup") == 1 + 10
    assert phases(seen)[-2:] == ["profiled", "profiled"]
    # What was timed before is warm-up now, in its order.
    assert [step.start_ns for step in seen.steps] == sorted(step.start_ns for step in seen.steps)


def test_a_script_that_ends_before_keeps_its_last_timed_steps(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, starts = settled_run(start, monkeypatch, 9)
    assert len(starts) == 4
    assert max(starts) < 100
    assert len(seen.first_look_steps) == 1


def test_a_warm_up_that_was_asked_for_is_taken_at_its_word() -> None:
    assert Schedule.of(7, 10, 3) == Schedule(warmup=7)
    assert Schedule.of(None, 10, 3) == Schedule(settling_ns=2_000_000_000)


def test_unless_they_are_given_timed_steps_last_for_a_window_of_the_devices_counters() -> None:
    assert Schedule.of(3, None, 3) == Schedule(least_timed_ns=600_000_000)
    # Ranks time and profile the same steps.
    assert Schedule.of(3, None, 3, alone=False) == Schedule()


def test_with_a_watch_later_steps_are_kept_in_full_and_the_program_is_left_as_it_was(
    start: Start,
) -> None:
    original = torch.utils.data.dataloader._BaseDataLoaderIter.__next__
    session = start(watch=True)
    training = Training()
    training.step(12)
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__ is not original
    training.step(6)
    seen = session.finish()
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__ is original
    assert seen.later_steps is None
    found = seen.watched_steps
    assert found is not None
    # The first mark only begins one.
    assert found.marked == 18 - (2 + 2 + 1 + 2) - 1
    assert not found.on_device
    assert all(step.processor_ns and step.loader_ns == 0 for step in found.slowest)


def test_given_up_among_timed_steps_it_keeps_them_and_leaves_the_program_as_it_was(
    start: Start,
) -> None:
    original = torch.utils.data.dataloader._BaseDataLoaderIter.__next__
    session = start(schedule=Schedule(warmup=2, timed=9, profiled=2))
    Training().step(5)
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__ is not original
    session.give_up(RuntimeError("something of ours"))
    seen = session.finish()
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__ is original
    assert phases(seen) == ["warmup", "timed", "timed", "timed"]
    assert seen.warnings == ["profiling ended early: RuntimeError: something of ours"]
