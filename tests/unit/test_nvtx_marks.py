"""What gpuprof marks for other tools, and who is told to hold CUPTI."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gpuprof
from gpuprof.collectors.held_cupti import is_held_sentence
from gpuprof.collectors.live import cupti_holders, nvtx_marks, nvtx_ranges, torch_trace
from gpuprof.collectors.live.unix_clock import unix_ns
from gpuprof.collectors.manifest import ProcessInfo, Schedule
from gpuprof.profiler.bench import capture as bench_capture
from gpuprof.profiler.run.assemble import assemble
from gpuprof.profiler.run.observations import Observations
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.recorded import Recorded, Subject
from gpuprof.profiler.run.session import Session
from gpuprof.profiler.run.session_options import SessionOptions
from gpuprof.reference_kernels.benching.coordination import Alone
from gpuprof.reference_kernels.benching.run import BenchOptions, make_plans, run_plan
from gpuprof.reference_kernels.families import select
from gpuprof.reference_kernels.suite import Prepared
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.bench.results import CaseResult


class Tool:
    """NVTX's functions as a CUDA build of torch has them, which note what they are called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._started = 0

    def rangeStartA(self, name: str) -> int:
        self._started += 1
        self.calls.append(("start", name))
        return self._started

    def rangeEnd(self, handle: int) -> None:
        self.calls.append(("end", handle))

    def rangePushA(self, name: str) -> int:
        self.calls.append(("push", name))
        return 0

    def rangePop(self) -> int:
        self.calls.append(("pop", None))
        return 0

    def markA(self, text: str) -> None:
        self.calls.append(("mark", text))


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    """torch with NVTX; nobody listens."""
    tool = Tool()
    monkeypatch.setattr(torch._C, "_nvtx", tool, raising=False)
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    return tool


@pytest.fixture
def listening(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so")
    return tool


def a_session_of_three_steps() -> Session:
    session = Session(
        SessionOptions(Schedule(warmup=1, timed=1, profiled=0), steps="explicit", first_look=False)
    )
    session.start()
    try:
        for _ in range(4):
            with gpuprof.region("forward"):
                pass
            gpuprof.step()
    finally:
        session.finish()
        session.close()
    return session


def test_steps_and_regions_are_ranges_where_a_tool_listens(listening: Tool) -> None:
    nvtx_ranges.take_recorded()
    a_session_of_three_steps()
    names = [name for call, name in listening.calls if call in ("start", "push")]
    assert names == ["forward", "gpuprof step"] * 4
    # A step ends where the next begins, and what the program ends in is no complete one.
    assert [handle for call, handle in listening.calls if call == "end"] == [1, 2, 3]
    # They are not taken for the program's.
    assert [found.name for found in nvtx_ranges.take_recorded()] == []


def test_the_time_is_told_before_profiled_steps_alone(listening: Tool) -> None:
    ranges = nvtx_marks.StepRanges()
    before_ns = unix_ns()
    ranges.begin(tell_time=False)
    assert [call for call, _ in listening.calls] == ["start"]
    ranges.end()
    ranges.begin(tell_time=True)
    calls = listening.calls[2:]
    assert [call for call, _ in calls] == ["mark"] * 3 + ["start"]
    times = [int(text.removeprefix("gpuprof clock ")) for call, text in calls if call == "mark"]
    assert before_ns <= times[0] <= times[1] <= times[2] <= unix_ns()


@pytest.mark.parametrize("holder", [None, "Nsight Systems"])
def test_steps_that_a_tool_lengthens_are_not_compared_with_the_timed_ones(
    holder: str | None,
) -> None:
    schedule = Schedule(warmup=1, timed=1, profiled=0)
    session = Session(SessionOptions(schedule, steps="explicit", first_look=False))
    session.start()
    try:
        session.seen.cupti_held_by = holder
        for _ in range(8):
            gpuprof.step()
        seen = session.finish()
    finally:
        session.close()
    assert seen.steps[-1].phase == "timed"
    assert (seen.later_steps is None) == (holder is not None)


def test_nothing_is_emitted_where_nobody_listens(tool: Tool) -> None:
    a_session_of_three_steps()
    assert tool.calls == []


def test_a_torch_without_nvtx_emits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "tool.so")
    monkeypatch.delattr(torch._C, "_nvtx", raising=False)
    assert not nvtx_marks.tool_listens()
    a_session_of_three_steps()


def test_a_region_outside_of_a_recording_is_a_range_too(listening: Tool) -> None:
    with pytest.raises(KeyError), gpuprof.region("outside"):
        raise KeyError
    assert listening.calls == [("push", "outside"), ("pop", None)]


def test_each_version_of_a_bench_is_a_range(listening: Tool) -> None:
    options = BenchOptions(torch.device("cpu"), seed=0, budget_s=0.0, clock=None, group=Alone())
    (plan,) = make_plans(select(["softmax"]), "cpu", ["8x8"], ["fp32"])
    versions = list(run_plan(plan, options))
    pushed = [name for call, name in listening.calls if call == "push"]
    assert pushed
    assert all(name.endswith(" 8x8 fp32") for name in pushed)
    assert len(set(pushed)) == len(pushed) <= len(versions)
    assert listening.calls[-1] == ("pop", None)


@pytest.mark.parametrize(
    ("environment", "holder"),
    [
        ({}, None),
        # nsys --trace=nvtx leaves CUPTI alone.
        ({"NSYS_PROFILING_SESSION_ID": "7"}, None),
        ({"NSYS_PROFILING_SESSION_ID": "7", "CUDA_INJECTION64_PATH": "x.so"}, "Nsight Systems"),
        ({"NV_NSIGHT_INJECTION_TRANSPORT_TYPE": "1"}, "Nsight Compute"),
        ({"CUDA_INJECTION64_PATH": "/opt/libother.so"}, None),
    ],
)
def test_who_holds_cupti(
    environment: dict[str, str], holder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "NSYS_PROFILING_SESSION_ID",
        "CUDA_INJECTION64_PATH",
        "NV_NSIGHT_INJECTION_TRANSPORT_TYPE",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cupti_holders.cupti_holder() == holder
    injected = environment.get("CUDA_INJECTION64_PATH", "")
    suspect = cupti_holders.suspected_holder()
    assert suspect == (f"{injected.split('/')[-1]} (CUDA_INJECTION64_PATH)" if injected else None)


def test_torch_s_cuspy_is_asked_whether_it_subscribes(monkeypatch: pytest.MonkeyPatch) -> None:
    core = SimpleNamespace(has_live_subscription=lambda: True)
    monkeypatch.setitem(sys.modules, "torch.profiler._cuspy.core", core)  # type: ignore[arg-type]
    assert cupti_holders.cupti_holder() == "torch's Cuspy"
    core.has_live_subscription = lambda: False
    assert cupti_holders.cupti_holder() is None
    core.has_live_subscription = lambda: 1 / 0
    assert cupti_holders.cupti_holder() is None


def test_where_cupti_is_held_torch_s_profiler_is_not_asked_for_the_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.profiler, "profile", lambda **options: asked.append(options))
    torch_trace.TorchTrace(tmp_path / "t.json", steps=None)
    monkeypatch.setenv("NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "1")
    held = torch_trace.TorchTrace(tmp_path / "t.json", steps=None)
    activities = [[one.name for one in options["activities"]] for options in asked]
    assert activities == [["CPU", "CUDA"], ["CPU"]]
    assert held.cupti_held_by == "Nsight Compute"


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"cupti_held_by": "Nsight Systems"}, "Nsight Systems holds CUPTI in this process"),
        ({"cupti_held_by": "torch's Cuspy"}, "torch's Cuspy holds CUPTI in this process"),
    ],
)
def test_operators_of_a_held_device_are_no_work_of_a_cpu(
    seen: dict[str, str], said: str, tmp_path: Path
) -> None:
    trace = torch_trace.TorchTrace(tmp_path / "trace.json", steps=None)
    trace.start()
    torch.ones(4, 4) @ torch.ones(4, 4)
    trace.stop()
    observations = Observations(started_ns=0, trace=trace.export(), **seen)  # type: ignore[arg-type]
    subject = Subject(CaptureOutput(tmp_path / "unused"), title="t", source="test", command=())
    capture = assemble(Recorded(subject, Ranks(0, 0, 1), observations, ProcessInfo()))
    assert capture.kernels.is_empty()
    assert not capture.ops.is_empty()
    (warning,) = capture.processes[0].warnings
    assert warning.startswith(said)
    assert is_held_sentence(warning)
    assert analyze(capture).split is None


def test_a_bench_whose_device_another_tool_records_has_no_work_of_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_trace, "cupti_held_by", lambda: "Nsight Systems")
    used = SimpleNamespace(in_use=lambda: True, synchronize=lambda: None)
    monkeypatch.setattr(bench_capture, "cuda", used)
    square, product = torch.ones(8, 8), torch.empty(8, 8)
    case = bench_capture.profile_case(
        CaseResult(family="gemm", version="torch", size="8", dtype="fp32"),
        Prepared(lambda: torch.mm(square, square, out=product), (product,)),
        flush=lambda: None,
        line_up=lambda: None,
    )
    assert case.trace.kernels.is_empty()
    assert not case.trace.ops.is_empty()
