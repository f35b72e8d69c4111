"""Why the device had no work: captures written by hand whose answer is known, and all others.

Times are in us unless said; a launch reaches an idle device in 3 us.
"""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.host_events import (
    Compilation,
    HostEvent,
    LoaderWorkers,
    NextBatch,
    range_row,
)
from gpuprof.collectors.manifest import Device
from gpuprof.reports.blocks import Paragraph
from gpuprof.reports.sections import idle as idle_section
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.idle_figures import IdleCause

US = 1000
LATENCY = 3
STEP = 1_000_000


class Program:
    """A step that begins at 0, in which one thread works on one device."""

    def __init__(self) -> None:
        self.build = CaptureBuilder()
        self.build.step("profiled", 0, STEP * US)

    def launch(self, at: int, length: int, *, busy_from: int | None = None, **more: Any) -> None:
        """An operator of 5 us that launches work of `length`."""
        begins = (at + 2 + LATENCY if busy_from is None else busy_from) * US
        self.build.op("aten::relu", at * US, (at + 5) * US, **more)
        self.build.kernel((at + 1) * US, begins, begins + length * US, **more)
        self.build.rows["launches"][-1]["end_ns"] = (at + 2) * US

    def call(self, name: str, at: int, length: int, **more: Any) -> None:
        self.build.rows["launches"].append(
            {
                "name": name,
                "thread": 1,
                "start_ns": at * US,
                "end_ns": (at + length) * US,
                "correlation": 100_000 + len(self.build.rows["launches"]),
                **more,
            }
        )

    def op(self, name: str, at: int, length: int, **more: Any) -> None:
        self.build.op(name, at * US, (at + length) * US, **more)

    def range(self, name: str, at: int, length: int, **more: Any) -> None:
        self.build.range(name, at * US, (at + length) * US, **more)

    def analyze(self, **process: Any) -> Analysis:
        for table in ("ops", "launches", "ranges"):
            self.build.rows[table].sort(key=lambda row: (row["start_ns"], -row["end_ns"]))
        for number, row in enumerate(self.build.rows["ops"]):
            row["op_id"] = number
        _with_parents(self.build.rows["ops"])
        return analyze(self.build.build(**process))


def _with_parents(ops: list[dict[str, Any]]) -> None:
    for op in ops:
        around = [
            other
            for other in ops
            if other is not op
            and other["thread"] == op["thread"]
            and other["start_ns"] <= op["start_ns"]
            and other["end_ns"] >= op["end_ns"]
            and other["op_id"] < op["op_id"]
        ]
        if around:
            op["parent_id"] = max(around, key=lambda other: (other["start_ns"], other["op_id"]))[
                "op_id"
            ]


def causes(analysis: Analysis) -> Mapping[str, IdleCause]:
    idle, split = analysis.idle, analysis.split
    assert idle is not None
    assert split is not None
    found = {cause.kind: cause for cause in idle.causes}
    assert sum(cause.nanoseconds for cause in idle.causes) == idle.nanoseconds == split.idle_ns
    for kind, cause in found.items():
        assert cause.nanoseconds == split.nanoseconds(kind)
        if not cause.culprits:
            # Of what only timed steps show nothing is known.
            assert kind == "unexplained"
            continue
        named = sum(one.nanoseconds for one in cause.culprits) + cause.others_ns
        assert named == pytest.approx(cause.nanoseconds, abs=len(cause.culprits) + 1)
    return found


def between(program: Program, until: int) -> IdleCause:
    """The cause of most of the gap between work that ends at 1000 and work launched at `until`."""
    program.launch(994, 1)
    program.launch(until, STEP - until - 5)
    found = causes(program.analyze())
    # Before the first launch nothing is recorded.
    return max(found.values(), key=lambda cause: cause.nanoseconds - 996 * US)


def test_launches_are_named_with_what_is_between_them() -> None:
    program = Program()
    # Each works for 2 us of the 20 that the host needs from one to the next.
    for number in range(50):
        program.launch(20 * number, 2)
    program.launch(1000, STEP - 1005)
    found = causes(program.analyze())
    assert set(found) == {"launch"}
    # The device waits 5 us for the first, and 18 us for each other one.
    assert found["launch"].nanoseconds == (5 + 50 * 18) * US
    named = {one.what: one for one in found["launch"].culprits}
    assert named["aten::relu"].calls_per_step == 51
    # Of 20 us an operator takes 5, of which 3 are behind its launch.
    assert named["aten::relu"].nanoseconds == pytest.approx((2 + 3 + 50 * 3) * US, abs=160 * US)
    assert set(named) == {"aten::relu", "Python between operators"}


def test_the_wait_after_item_is_of_the_synchronisation() -> None:
    program = Program()
    program.launch(0, 900)
    program.op("aten::item", 10, 900)
    program.op("aten::_local_scalar_dense", 11, 898)
    program.call("cudaStreamSynchronize", 12, 896)
    # Woken 3 us after the device is done at 905, the host goes on to launch at 960.
    program.launch(960, STEP - 965)
    analysis = program.analyze()
    found = causes(analysis)
    # 60 us from 905 to 965; without the call the host would have been 893 us earlier.
    assert found["synchronisation"].nanoseconds == 60 * US
    assert found["launch"].nanoseconds == 5 * US
    (culprit,) = found["synchronisation"].culprits
    assert (culprit.what, culprit.call, culprit.operator, culprit.calls_per_step) == (
        ".item()",
        "cudaStreamSynchronize",
        "aten::_local_scalar_dense",
        1,
    )


def test_a_synchronisation_costs_no_more_than_it_waited() -> None:
    program = Program()
    program.launch(0, 30)
    # The device is done at 35: the call waits for 5 us, and 400 us of launching follow.
    program.call("cudaDeviceSynchronize", 30, 6)
    for number in range(20):
        program.launch(50 + 20 * number, 2)
    program.launch(450, STEP - 455)
    found = causes(program.analyze())
    # 3 + 1 us in the call after the device's work (in the host's time up to the launch), and 5 us
    # that the host would have been earlier.
    assert found["synchronisation"].nanoseconds == pytest.approx(9 * US, abs=2)
    assert (
        found["launch"].nanoseconds
        == (5 + 20 + 20 * 18) * US - found["synchronisation"].nanoseconds
    )


@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("cudaMalloc", "allocator", "cudaMalloc"),
        ("cudaFree_v3020", "allocator", "cudaFree_v3020"),
        ("hipHostMalloc", "allocator", "hipHostMalloc"),
        ("cuModuleLoadData", "compilation", "cuModuleLoadData"),
        ("cuLibraryLoadData", "compilation", "cuLibraryLoadData"),
        # A kernel is loaded when it is launched for the first time.
        ("cudaFuncGetAttributes", "compilation", "cudaFuncGetAttributes"),
        ("cudaEventSynchronize", "synchronisation", "cudaEventSynchronize"),
        ("cudaStreamCreateWithFlags", "host work", "cudaStreamCreateWithFlags"),
    ],
)
def test_a_call_that_takes_long(name: str, kind: str, what: str) -> None:
    program = Program()
    program.op("aten::empty", 1001, 9002)
    program.call(name, 1002, 9000)
    cause = between(program, 10_010)
    assert cause.kind == kind
    assert cause.culprits[0].what == what
    assert cause.culprits[0].nanoseconds == pytest.approx(9000 * US, rel=0.01)


@pytest.mark.parametrize(
    ("copy", "call", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "cudaMemcpyAsync", "blocking copy"),
        ("Memcpy DtoH (Device -> Pageable)", "cudaMemcpyAsync", "synchronisation"),
        ("Memcpy HtoD (Host -> Device)", "hipMemcpyWithStream", "blocking copy"),
        # It does not wait; that it took long has another reason.
        ("Memcpy HtoD (Pinned -> Device)", "cudaMemcpyAsync", "host work"),
    ],
)
def test_a_call_that_copies(copy: str, call: str, kind: str) -> None:
    program = Program()
    program.launch(994, 1)
    program.call(call, 1010, 5000)
    program.build.rows["kernels"].append(
        {
            "name": copy,
            "kind": "memcpy",
            "device": 0,
            "stream": 7,
            "bytes": 10,
            "correlation": program.build.rows["launches"][-1]["correlation"],
            "start_ns": 6005 * US,
            "end_ns": 6008 * US,
        }
    )
    program.launch(6020, STEP - 6025)
    found = causes(program.analyze())
    assert found[kind].nanoseconds == pytest.approx(5000 * US, rel=0.01)
    assert found[kind].culprits[0].call == ("" if kind == "host work" else call)


@pytest.mark.parametrize(
    ("name", "domain", "kind"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "nvtx", "data loader"),
        ("data loader: next batch", "gpuprof", "data loader"),
        ("garbage collection", "gpuprof", "garbage collection"),
        ("compile: forward", "gpuprof", "compilation"),
        ("CUDA graph capture", "gpuprof", "compilation"),
        ("_compile.compile_inner (dynamo_timed)", "record_function", "compilation"),
        # A user's range without device work, whatever it is called.
        ("garbage collection", "nvtx", "host work"),
        ("load data", "nvtx", "host work"),
    ],
)
def test_what_the_host_does_in_a_range(name: str, domain: str, kind: str) -> None:
    program = Program()
    program.range(name, 1001, 50_000, domain=domain)
    # Operators in it are its own doing.
    program.op("aten::stack", 1010, 20_000)
    cause = between(program, 51_010)
    assert cause.kind == kind
    assert cause.nanoseconds == pytest.approx(50_000 * US, rel=0.03)
    assert cause.culprits[0].what == name


def recorded(program: Program, event: HostEvent, at: int, length: int) -> None:
    """A row of what gpuprof records of the host itself."""
    row = range_row(event, thread=1, start_ns=at * US, end_ns=(at + length) * US)
    program.build.rows["ranges"].append(row)


def test_a_compilation_is_named_with_its_guard_and_line() -> None:
    program = Program()
    for at, guard in ((1001, "size mismatch: expected 4, actual 5"), (20_000, "expected 4, 6")):
        event = Compilation(
            function="forward", file="/home/me/train.py", line=42, recompiled=True, guard=guard
        )
        recorded(program, event, at, 15_000)
    # torch's own names for what it does in one are not looked at.
    program.op("bytecode_tracing (dynamo_timed)", 2000, 3000)
    (culprit,) = between(program, 36_000).culprits
    assert (culprit.what, culprit.place) == ("compiles again forward", "train.py:42")
    assert (culprit.calls_per_step, culprit.detail) == (2, "size mismatch: expected 4, actual 5")
    assert culprit.nanoseconds == 30_000 * US


@pytest.mark.parametrize(
    ("batch", "workers", "detail"),
    [
        (
            NextBatch(workers=0, pinned=True, cpu_ns=45_000 * US, run_delay_ns=0),
            None,
            "no workers: the program loads itself, computing",
        ),
        (
            NextBatch(workers=0, pinned=True, cpu_ns=0, run_delay_ns=0, storage_bytes=70_000_000),
            None,
            "no workers: the program loads itself, reading from storage",
        ),
        (
            NextBatch(workers=2, pinned=True, cpu_ns=100, run_delay_ns=0),
            LoaderWorkers(workers=2, cpu_ns=99_000 * US, run_delay_ns=0),
            "2 workers, computing",
        ),
        (
            NextBatch(workers=1, pinned=False, cpu_ns=100, run_delay_ns=0),
            LoaderWorkers(workers=1, cpu_ns=0, run_delay_ns=49_000 * US),
            "1 worker, waiting for a core",
        ),
        # The system kept no count.
        (NextBatch(workers=3, pinned=False), None, "3 workers"),
    ],
)
def test_a_loader_is_named_with_who_works(
    batch: NextBatch, workers: LoaderWorkers | None, detail: str
) -> None:
    program = Program()
    recorded(program, batch, 1001, 50_000)
    # torch's own range around the same batch.
    program.range("enumerate(DataLoader)#_BaseDataLoaderIter.__next__", 1002, 49_990)
    if workers is not None:
        # They work all the time, which keeps nothing waiting by itself.
        recorded(program, workers, 1001, 50_000)
    cause = between(program, 51_010)
    assert cause.kind == "data loader"
    (culprit,) = cause.culprits
    assert (culprit.what, culprit.detail) == ("next batch of a DataLoader", detail)


def test_what_is_done_has_a_line_where_the_program_was_followed() -> None:
    program = Program()
    program.op("aten::item", 1005, 400, file="train.py", line=12, function="step")
    program.call("cudaStreamSynchronize", 1010, 300)
    program.op("aten::sum", 1500, 100)
    for at, length, line in ((0, 1400, 12), (1400, 300, 13), (1700, 400, None)):
        program.build.rows["positions"].append(
            {
                "thread": 1,
                "start_ns": at * US,
                "end_ns": (at + length) * US,
                "file": "train.py",
                "line": line,
                "function": "step",
            }
        )
    program.launch(994, 1)
    program.launch(1900, STEP - 1905, thread=2)
    found = causes(program.analyze())
    item = found["synchronisation"].culprits[0]
    assert (item.what, item.operator, item.place) == (
        "cudaStreamSynchronize",
        "aten::item",
        "train.py:12",
    )
    places = {(one.what, one.place): one.nanoseconds / US for one in found["launch"].culprits}
    # Without a line of its own an operator has that of the thread that waits for it.
    assert places["aten::sum", "train.py:13"] == 100
    assert places["aten::relu", "train.py, step"] == pytest.approx(2, abs=3)
    assert places["Python between operators", "train.py:13"] == pytest.approx(200, abs=5)


def test_a_batch_has_the_line_that_asks_for_it_and_not_those_that_make_it() -> None:
    program = Program()
    recorded(program, NextBatch(workers=0, pinned=True), 1001, 50_000)
    for at, length, line in ((900, 300, 7), (1200, 49_000, 99), (50_200, 900, 8)):
        program.build.rows["positions"].append(
            {"thread": 1, "start_ns": at * US, "end_ns": (at + length) * US}
            | {"file": "train.py", "line": line, "function": "step"}
        )
    cause = between(program, 51_010)
    named = {(one.what, one.place): one.nanoseconds / US for one in cause.culprits}
    assert named == {("next batch of a DataLoader", "train.py:7"): 50_000}


def test_each_profiled_step_has_its_own_causes() -> None:
    program = Program()
    program.build.rows["steps"].clear()
    for start in (0, 10_000):
        program.build.step("profiled", start * US, (start + 10_000) * US)
    program.launch(0, 4000)
    # It loads from 4010 on, 5990 us of it in the first step and 2000 in the second.
    program.range("enumerate(DataLoader)#_BaseDataLoaderIter.__next__", 4010, 7990)
    program.launch(12_000, 7995)
    idle = program.analyze().idle
    assert idle is not None
    first, second = ({part.kind: part.nanoseconds for part in step} for step in idle.profiled_steps)
    # In the host's time: what ends the gap at 12,005 returned from its launch at 12,002.
    # Before it loads it does nothing recorded for 4 ms, of which the device waits for 8 us.
    assert first == {"data loader": 5987 * US, "host work": 8 * US, "launch": 5 * US}
    assert second == {"data loader": 2003 * US, "launch": 2 * US}


def timed_and_profiled(*, first: int = 0, last: int = 0) -> Analysis:
    """Two timed steps of 6 ms; before and after them, some that load for 3 of their 8 ms."""
    program = Program()
    program.build.rows["steps"].clear()
    for number in range(2):
        at = (8000 * first + 6000 * number) * US
        program.build.step("timed", at, at + 6000 * US, device_ns=6000 * US)
    begins = [*range(0, 8000 * first, 8000), *range(40_000, 40_000 + 8000 * last, 8000)]
    for begin in begins:
        program.build.step("profiled", begin * US, (begin + 8000) * US)
        program.launch(begin + 10, 10)
        program.range("enumerate(DataLoader)#_BaseDataLoaderIter.__next__", begin + 100, 3000)
        for number in range(100):
            program.launch(begin + 3200 + 45 * number, 10)
        program.launch(begin + 7900, 90)
    return program.analyze()


@pytest.mark.parametrize("profiled", [{"last": 1}, {"first": 2}], ids=["after them", "before them"])
def test_a_timed_step_is_shorter_by_launches(profiled: dict[str, int]) -> None:
    analysis = timed_and_profiled(**profiled)
    assert analysis.split is not None
    assert analysis.split.basis == "timed"
    found = causes(analysis)
    assert found["data loader"].nanoseconds == 3000 * US
    # 6 ms less what the device is busy for.
    assert found["launch"].nanoseconds == (6000 - 3000 - 10 - 1000 - 90) * US
    assert analysis.bottleneck.kind == "data loader"
    assert analysis.bottleneck.evidence.startswith("50% of the step (3 ms): ")


def test_one_of_a_program_s_first_steps_does_not_explain_the_others() -> None:
    analysis = timed_and_profiled(first=1)
    found = causes(analysis)
    assert found["unexplained"].nanoseconds == (6000 - 10 - 1000 - 90) * US
    assert found["data loader"].nanoseconds == 0
    assert (found["data loader"].least_ns, found["data loader"].most_ns) == (0, 3000 * US)
    assert found["data loader"].profiled_ns == 3000 * US
    assert analysis.bottleneck.kind == "unexplained"
    assert "only the program's first steps were profiled" in analysis.bottleneck.evidence
    assert "nothing tells why" in idle_paragraph(analysis)


def idle_paragraph(analysis: Analysis) -> str:
    first, *_ = idle_section.SECTION.body(analysis)
    assert isinstance(first, Paragraph)
    return first.text


def test_of_two_first_steps_the_report_tells_how_causes_have_their_length() -> None:
    analysis = timed_and_profiled(first=2)
    assert analysis.idle is not None
    assert (analysis.idle.first_steps, len(analysis.idle.profiled_steps)) == (True, 2)
    assert "where the causes were seen" in idle_paragraph(analysis)


def test_a_range_that_launches_is_no_other_work() -> None:
    program = Program()
    program.range("forward", 990, STEP)
    cause = between(program, 1500)
    assert cause.kind == "launch"
    named = {(one.what, one.operator): one.nanoseconds for one in cause.culprits}
    assert named["Python between operators", "in forward"] == pytest.approx(500 * US, rel=0.02)


def test_ranges_that_differ_in_a_number_are_one_thing_and_one_alone_keeps_its_name() -> None:
    program = Program()
    program.launch(0, 1)
    for number, at in ((190, 1_000), (250, 10_000), (7, 20_000)):
        program.range(f"IO {number}", at, 5_000)
    program.range("layer 3 on disk", 30_000, 5_000)
    program.launch(40_000, STEP - 40_010)
    culprits = causes(program.analyze())["host work"].culprits
    named = {one.what: (one.nanoseconds, one.calls_per_step) for one in culprits}
    assert named["IO #"] == (15_000 * US, 3)
    assert named["layer 3 on disk"] == (5_000 * US, 1)
    assert not any(what.startswith("IO ") and what != "IO #" for what in named)


def test_python_that_does_nothing_recorded_for_long_is_other_work() -> None:
    # time.sleep(0.05)
    cause = between(Program(), 51_000)
    assert cause.kind == "host work"
    named = {one.operator: one.nanoseconds for one in cause.culprits}
    assert named == {"before aten::relu": pytest.approx(50_000 * US, rel=0.01)}


def test_an_operator_that_works_long_before_it_launches() -> None:
    # As seen on an H200: cuDNN builds a plan for each new length.
    for name, kind in (
        ("aten::_cudnn_attention_forward", "compilation"),
        ("aten::argsort", "host work"),
    ):
        program = Program()
        program.launch(994, 1)
        program.op(name, 1001, 58_000)
        program.launch(58_900, STEP - 58_905)
        found = causes(program.analyze())
        assert found[kind].culprits[0].what == name
        assert found[kind].nanoseconds == pytest.approx(57_900 * US, rel=0.01)


def test_work_that_waits_in_a_queue_is_not_the_hosts() -> None:
    program = Program()
    program.launch(0, 100)
    # Launched at 12, and another stream's event lets it begin at 700.
    program.launch(10, 50, busy_from=700)
    program.launch(20, STEP - 760, busy_from=752)
    found = causes(program.analyze())
    assert found["queued"].nanoseconds == (700 - 105 + 2) * US
    kernels = {one.kernel: one.nanoseconds for one in found["queued"].culprits}
    assert kernels == {"k": (700 - 105) * US, "": 2 * US}
    assert found["launch"].nanoseconds == 5 * US


def test_a_backward_pass_on_a_thread_of_its_own() -> None:
    program = Program()
    program.launch(0, 10)
    # The main thread computes a loss in Python, then another thread launches.
    program.op("aten::sum", 20, 60)
    program.op("autograd::engine::evaluate_function: MulBackward0", 100, 100, thread=2)
    program.launch(190, STEP - 195, thread=2)
    found = causes(program.analyze())
    named = {one.what: one.nanoseconds for one in found["launch"].culprits}
    # The device waits until 5 and from 15 to 195, which the host decides at -3 to 2 and 12 to 192.
    assert named["aten::sum"] == 60 * US
    assert named["MulBackward0"] == 90 * US + 2 * US
    assert named["Python between operators"] == (3 + 8 + 20) * US


def test_without_anything_recorded_of_the_host_the_cause_is_unknown() -> None:
    program = Program()
    program.launch(994, 1)
    program.launch(1500, STEP - 1505)
    for table in ("ops", "launches"):
        program.build.rows[table].clear()
    found = causes(program.analyze())
    assert set(found) == {"unexplained"}


def test_on_a_cpu_what_is_between_operators_has_causes_too() -> None:
    build = CaptureBuilder()
    build.step("profiled", 0, 100_000 * US)
    for start, end in ((10, 20_000), (60_000, 90_000)):
        op = build.op("aten::mm", start * US, end * US)
        build.rows["kernels"].append(
            {"name": "aten::mm", "kind": "op", "op_id": op, "start_ns": start * US}
            | {"end_ns": end * US}
        )
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    build.range(name, 20_010 * US, 50_010 * US)
    build.range("garbage collection", 51_000 * US, 54_000 * US, domain="gpuprof")
    analysis = analyze(build.build(Device(index=0, kind="cpu", name="cpu")))
    found = {kind: cause.nanoseconds / US for kind, cause in causes(analysis).items()}
    assert found["data loader"] == 30_000
    assert found["garbage collection"] == 3000
    # 50.01 to 51 ms is too short to be work of its own; 54 to 60 ms and 90 to 100 ms are not.
    assert found["host work"] == 6000 + 10_000
    assert found["outside"] == 10 + 10 + 990
    assert analysis.idle is not None
    assert all(cause.least_ns is None for cause in analysis.idle.causes)


@pytest.mark.parametrize("seed", range(12))
def test_every_nanosecond_is_looked_at_where_the_host_was(seed: int) -> None:
    """Against a loop over single nanoseconds, one thread and no synchronisation."""
    pick = random.Random(seed)
    build = CaptureBuilder()
    length = 3000
    build.step("profiled", 0, length)
    names: list[tuple[int, int, str]] = []
    clock, busy_until = pick.randrange(20), 0
    kernels: list[tuple[int, int, int]] = []
    while clock < length - 300:
        start = clock
        name = pick.choice(["aten::a", "aten::b", "aten::c"])
        launched = start + pick.randrange(1, 30)
        end = launched + pick.randrange(2, 30)
        begins = max(busy_until, launched + 1 + pick.choice([4, 6]))
        ends = begins + pick.choice([1, 5, 60])
        build.op(name, start, end)
        build.kernel(launched, begins, ends)
        kernels.append((launched + 1, begins, ends))
        names.append((start, end, name))
        busy_until = ends
        clock = end + pick.randrange(0, 40)
    analysis = analyze(build.build())
    latencies = sorted(
        begins - returned
        for (returned, begins, _), (_, _, before) in zip(kernels[1:], kernels, strict=False)
        if returned - 1 > before
    )
    allowed = 2 * latencies[(len(latencies) - 1) // 2]
    expected = Counter[str]()
    for (_, _, before), (returned, begins, _) in zip([(0, 0, 0), *kernels], kernels, strict=False):
        returned = min(returned, begins)
        own = min(max(begins - returned - allowed, 0), begins - before)
        for time in range(before, begins):
            if time >= begins - own:
                expected["from one kernel to the next"] += 1
                continue
            host = time - (begins - own - returned)
            around = [name for start, end, name in names if start <= host < end]
            expected[around[0] if around else "Python between operators"] += 1
    last = max(busy_until, 0)
    for time in range(last, length):
        around = [name for start, end, name in names if start <= time < end]
        expected[around[0] if around else "Python between operators"] += 1
    found = Counter[str]()
    for cause in causes(analysis).values():
        for culprit in cause.culprits:
            found[culprit.what] += culprit.profiled_ns
    assert found == +expected


@pytest.mark.parametrize("synchronised", [False, True])
def test_what_the_device_hides_of_a_loader_goes_too_unless_the_host_waits(
    synchronised: bool,
) -> None:
    program = Program()
    program.launch(0, 2000)
    # The device works until 2005, and for all that the host loads from 1000 to 6000.
    program.range("enumerate(DataLoader)#_BaseDataLoaderIter.__next__", 1000, 5000)
    # What is collected while it loads is the loader's.
    program.range("garbage collection", 3000, 500, domain="gpuprof")
    program.launch(6000, STEP - 6010)
    if synchronised:
        program.call("cudaStreamSynchronize", 6100, 10)
    found = causes(program.analyze())
    loader = found["data loader"]
    assert "garbage collection" not in found
    # In the host's time, a launch's latency earlier than the device's.
    assert loader.nanoseconds == pytest.approx(4000 * US, abs=10 * US)
    assert loader.profiled_host_ns == 5000 * US
    hidden_ns = 5000 * US - loader.nanoseconds
    assert loader.hidden_ns == (0 if synchronised else hidden_ns)
    assert loader.counted_ns is None


def test_what_is_counted_in_timed_steps_is_that_by_which_the_median_one_is_longer() -> None:
    program = Program()
    program.build.rows["steps"].clear()
    # Every second step loads: 30 ms are the median of 20 and 40, and 20 that of what is left.
    for number, loading in enumerate((0, 20_000, 0, 20_000)):
        at, length = 50_000 * number, 20_000 + loading
        columns = {"device_ns": length * US, "loader_ns": loading * US}
        # One of four steps collects garbage, and the median one does not.
        collecting = 5000 * US if number == 0 else 0
        program.build.step(
            "timed", at * US, (at + length) * US, garbage_collection_ns=collecting, **columns
        )
    program.build.step("profiled", 200_000 * US, 250_000 * US)
    program.launch(200_000, 15_000)
    program.range("enumerate(DataLoader)#_BaseDataLoaderIter.__next__", 200_100, 30_000)
    program.launch(245_000, 4000)
    found = causes(program.analyze())
    assert found["data loader"].counted_ns == 10_000 * US
    assert "garbage collection" not in found
