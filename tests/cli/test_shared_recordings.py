"""Every recording of ../shared: it is analysed or refused, as others count it, and its split holds.

Each is analysed once a process. What gpuprof reads is compared with what Python's json module and
plain loops say about it, and with what was worked out by hand (benchmarks/step_by_hand.py).
"""

import gzip
import importlib.util
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl
import pytest
from in_process import Done, run_in_process
from split_physics import check_physics

from gpuprof.collectors import kineto, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.opening import open_traces
from gpuprof.roofline.analysis import ANALYSIS_FILE, Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.attribution import attribute

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
KINETO, RECORDINGS = SHARED / "public" / "kineto", SHARED / "recordings"
ALL = sorted(path for path in SHARED.rglob("*") if path.is_file())
FILES = sorted([*KINETO.glob("*.json.gz"), *RECORDINGS.glob("*.json.gz")])
OTHERS = tuple(
    path
    for path in (
        *sorted(KINETO.glob("*.json.gz")),
        *sorted((SHARED / "public" / "nsys").glob("nsightful*.sqlite")),
    )
    # It takes longest, and another recording of the same program is here.
    if "autograd_api" not in path.name
)
RUNS = ("h200x4_ddp", "h200x4_straggler")
# Of 2023, when the external ids of device events were those of runtime calls.
EARLIER_IDS = {"param_linear_kineto.json.gz", "param_resnet_kineto.json.gz"}
DEVICE_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
OP_CATEGORIES = {"cpu_op", "operator"}
LAUNCH_CATEGORIES = {"cuda_runtime", "cuda_driver", "runtime"}


pytestmark = pytest.mark.skipif(not FILES, reason="the recordings of ../shared are absent")


class AnalyzedFile(NamedTuple):
    """What `gpuprof analyze` did with one file."""

    done: Done
    folder: Path


Analyzed = Callable[[Path], AnalyzedFile]


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory: pytest.TempPathFactory) -> Analyzed:
    """`gpuprof analyze` of a file, once for all tests here: the largest take seconds."""
    folder = tmp_path_factory.mktemp("analyzed")

    @cache
    def analyzed(path: Path) -> AnalyzedFile:
        capture = folder / str(path.relative_to(SHARED)).replace("/", "-")
        return AnalyzedFile(run_in_process(["analyze", str(path), "-o", str(capture)]), capture)

    return analyzed


@cache
def stored(capture: Path) -> Analysis:
    """The analysis that was stored with a capture."""
    return msgspec.json.decode((capture / ANALYSIS_FILE).read_bytes(), type=Analysis)


def true_refusal(path: Path) -> str | None:
    """Why this file cannot be read, None where it must be."""
    if path.name.endswith(".tar.gz"):
        return "an archive; unpack it"
    if path.name.endswith("nsys_stats.csv"):
        return "no CSV of Nsight Compute"
    if path.suffix == ".log" and b"NCCL INFO" in path.read_bytes():
        return "a log of NCCL without a communicator"
    if path.suffix in (".md", ".log", ".py", ".sh"):
        return "no known trace; expected a PyTorch profiler trace"
    if path.suffix == ".nsys-rep" and shutil.which("nsys") is None:
        return "only `nsys` can read, and it is not found here"
    if ".ncu-rep" in path.name and importlib.util.find_spec("ncu_report") is None:
        return "pip install 'gpuprof-roofline[ncu]'"
    return None


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(SHARED)))
def test_every_shared_file_reads_or_is_refused_with_a_true_reason(
    path: Path, analyzed: Analyzed
) -> None:
    (code, output, said), folder = analyzed(path)
    reason = true_refusal(path)
    if reason is None:
        assert (code, said) == (0, "")
        assert stored(folder).title in output
    else:
        assert (code, output) == (1, "")
        assert reason in said
        assert said.count("\n") == 1
        assert not folder.exists()


# -- what Python's json module says ----------------------------------------------------------------


def nanoseconds(value: int | Decimal) -> int:
    return value * 1000 if isinstance(value, int) else round(value * 1000)


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        document = json.load(file, parse_float=Decimal)
    found = document if isinstance(document, list) else document["traceEvents"]
    return [event for event in found if isinstance(event.get("cat"), str)]


@dataclass(frozen=True)
class Trace:
    """One file, read by Python's json and by gpuprof."""

    name: str
    events: list[dict[str, Any]]
    capture: Capture


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.name)
def trace(request: pytest.FixtureRequest, analyzed: Analyzed) -> Trace:
    path: Path = request.param
    capture = attribute(storage.load(analyzed(path).folder))
    return Trace(path.name, events(path), capture)


def union(intervals: list[tuple[int, int]]) -> int:
    """Nanoseconds covered by at least one interval."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            total, reached = total + end - start, end
        elif end > reached:
            total, reached = total + end - reached, end
    return total


def test_totals_counts_and_busy_time_equal_a_plain_calculation(trace: Trace) -> None:
    by_category: dict[str, list[tuple[int, int, str]]] = {}
    for event in trace.events:
        if event["ph"] == "X":
            start, duration = nanoseconds(event["ts"]), nanoseconds(event["dur"])
            row = (start, start + duration, event["name"])
            by_category.setdefault(event["cat"].lower(), []).append(row)
    device, ops, launches = (
        [row for category in categories for row in by_category.get(category, ())]
        for categories in (DEVICE_CATEGORIES, OP_CATEGORIES, LAUNCH_CATEGORIES)
    )
    capture = trace.capture
    # What gloo's threads do is no work of a device.
    gloo = pl.col("name").str.starts_with("gloo:")
    kernels = capture.kernels.filter(pl.col("kind") != "op", ~gloo)
    assert kernels.height == len(device)
    assert capture.launches.height == len(launches)
    steps = {name for _, _, name in ops if name.startswith("ProfilerStep#")}
    assert capture.ops.height == sum(name not in steps for _, _, name in ops)
    totals: Counter[str] = Counter()
    for start, end, name in device:
        totals[name] += end - start
    duration = (pl.col("end_ns") - pl.col("start_ns")).sum()
    assert dict(kernels.group_by("name").agg(duration).iter_rows()) == dict(totals)
    busy = union([(start, end) for start, end, _ in device])
    assert union(list(kernels.select("start_ns", "end_ns").iter_rows())) == busy


def test_operators_of_kernels_are_those_that_kineto_names(trace: Trace) -> None:
    """Since 2024 a kernel's External id is that of the operator that launched it."""
    ops = {
        event["args"]["External id"]: (event["name"], nanoseconds(event["ts"]))
        for event in trace.events
        if event["cat"] == "cpu_op" and "Ev Idx" in event["args"]
    }
    expected = Counter(
        ops[event["args"]["External id"]]
        for event in trace.events
        if event["cat"] == "kernel" and event.get("args", {}).get("External id") in ops
    )
    if not expected or trace.name in EARLIER_IDS:
        pytest.skip("its kernels do not name their operators")
    capture = trace.capture
    owners = capture.kernels.join(capture.ops, on=["rank", "op_id"])
    base = capture.ops["start_ns"].min() - min(start for _, start in ops.values())
    actual = Counter(
        (name, start - base)
        for name, start in owners.select("name_right", "start_ns_right").iter_rows()
    )
    # Memory operations and kernels without an id are in `actual` alone.
    assert not expected - actual


def test_operators_of_kernels_equal_a_plain_search(trace: Trace) -> None:
    capture = trace.capture
    threads: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for op in capture.ops.select("process", "thread", "start_ns", "end_ns", "op_id").iter_rows():
        threads.setdefault(op[:2], []).append(op[2:])
    calls: dict[int, tuple[int, int, int]] = {}
    for call in capture.launches.sort("start_ns").iter_rows(named=True):
        calls.setdefault(call["correlation"], (call["process"], call["thread"], call["start_ns"]))
    chosen = capture.kernels.filter(pl.col("kind") != "op").gather_every(97)
    for kernel in chosen.iter_rows(named=True):
        call = calls.get(kernel["correlation"]) if kernel["correlation"] is not None else None
        around = (
            [op for op in threads.get(call[:2], []) if op[0] <= call[2] < op[1]] if call else []
        )
        # The innermost operator started last; sorted rows put it last among equals.
        expected = around[-1][2] if around else None
        assert kernel["op_id"] == expected


def test_a_tar_archive_of_traces_is_refused_with_the_reason() -> None:
    path = KINETO / "param_dlrm_kineto.tar.gz"
    with pytest.raises(CaptureError, match="tar archive"):
        kineto.read(path)


# Idle, compute, other device work and the whole, in us, as HolisticTraceAnalysis 0.5.0 prints them
# (get_temporal_breakdown). It leaves out what the last step launched; its times are whole
# microseconds, so only traces of that resolution can agree to the last digit.
HTA_BREAKDOWN = {
    "hta_trace_diff_control.json.gz": (62119, 234760, 86525, 383404),
    "hta_trace_diff_test.json.gz": (46910, 429216, 152245, 628371),
    "hta_sampled_rank-0.json.gz": (321378, 106252, 172428, 600058),
    "hta_sampled_rank-1.json.gz": (328671, 135548, 136455, 600674),
}


@pytest.mark.parametrize("name", HTA_BREAKDOWN)
def test_busy_and_idle_time_equal_those_of_hta(name: str, analyzed: Analyzed) -> None:
    capture = attribute(storage.load(analyzed(KINETO / name).folder))
    kernels = capture.kernels.filter(pl.col("step") != capture.steps["index"].max())
    compute = kernels.filter(pl.col("kind") == "kernel")
    busy, computing = (
        union(list(frame.select("start_ns", "end_ns").iter_rows())) for frame in (kernels, compute)
    )
    whole = kernels["end_ns"].max() - kernels["start_ns"].min()
    found = (whole - busy, computing, busy - computing, whole)
    assert found == tuple(1000 * value for value in HTA_BREAKDOWN[name])


# -- the step --------------------------------------------------------------------------------------


@cache
def run(name: str) -> tuple[Analysis, ...]:
    """The ranks of one run."""
    capture = open_traces(sorted(RECORDINGS.glob(f"{name}_rank*.json.gz")))
    return tuple(analyze(capture, rank=rank) for rank in capture.manifest.ranks)


@pytest.fixture
def single(analyzed: Analyzed) -> Callable[[str], Analysis]:
    """The analysis of one public trace or recording."""

    def single(name: str) -> Analysis:
        files = [folder / name for folder in (KINETO, RECORDINGS)]
        return stored(analyzed(next(file for file in files if file.exists())).folder)

    return single


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.name)
def test_every_split_of_public_traces_adds_up_and_check_physics(
    path: Path, analyzed: Analyzed
) -> None:
    folder = analyzed(path).folder
    check_physics(stored(folder))
    capture = storage.load(folder)
    for rank in capture.manifest.ranks[1:]:
        check_physics(analyze(capture, rank=rank))


@pytest.mark.parametrize("name", RUNS)
def test_every_rank_of_a_run_adds_up_and_has_the_same_definition(name: str) -> None:
    for analysis in run(name):
        check_physics(analysis)
        assert analysis.steps.definition == "device period"


@pytest.mark.parametrize(
    ("name", "milliseconds"), [("h200x4_ddp", 21.3), ("h200x4_straggler", 20.9)]
)
def test_the_ranks_of_a_run_have_the_devices_period(name: str, milliseconds: float) -> None:
    for analysis in run(name):
        assert analysis.steps.length_ns == pytest.approx(milliseconds * 1e6, rel=0.005)


def test_checkpointed_training_has_the_devices_period(single: Callable[[str], Analysis]) -> None:
    analysis = single("tracelens_mi300_resnet_act_checkpoint.json.gz")
    assert analysis.steps.definition == "device period"
    assert analysis.steps.length_ns == pytest.approx(18.8e6, rel=0.005)
    assert analysis.bottleneck.kind == "communication"


def test_overlapped_communication_does_not_shrink_what_is_at_the_roof() -> None:
    for analysis in run("h200x4_ddp"):
        assert analysis.split is not None
        assert analysis.split.nanoseconds("roof") >= 5_270_000


def test_the_profilers_gaps_are_not_the_verdict_of_an_inference(
    single: Callable[[str], Analysis],
) -> None:
    analysis = single("h100_block_infer_fp16.json.gz")
    assert analysis.steps.definition == "host range"
    assert analysis.bottleneck.kind == "compute"
    assert "301 µs" in analysis.bottleneck.evidence
    assert "waits for the host, without the profiler for 16.8 µs to" in analysis.bottleneck.evidence


def test_a_launch_bound_step_names_its_launches_and_its_item(
    single: Callable[[str], Analysis],
) -> None:
    analysis = single("h100_launch_bound.json.gz")
    assert analysis.idle is not None
    causes = {cause.kind: cause for cause in analysis.idle.causes}
    launches = {one.what: one for one in causes["launch"].culprits}
    # The program (400 operators): for _ in range(200): x = torch.relu(x); x = x + 1
    assert launches["aten::relu"].calls_per_step == launches["aten::add"].calls_per_step == 200
    assert "3.5 ms of it: aten::relu, 200 a step" in analysis.bottleneck.evidence
    item = next(one for one in causes["synchronisation"].culprits if one.what == ".item()")
    assert (item.call, item.operator) == ("cudaStreamSynchronize", "aten::_local_scalar_dense")
    assert item.calls_per_step == 1
    # All of its three calls together take 37.9 us, most of it under the last kernel and the copy.
    assert item.profiled_ns < 37_900 / 3


@pytest.mark.parametrize(
    ("name", "kind", "share"),
    [
        # Both load in the main process: 103 of 107 ms and 117 ms a batch.
        ("tracelens_mi300_owlv2-large.json.gz", "data loader", 0.64),
        ("tracelens_h100_owlv2-large.json.gz", "data loader", 0.51),
        # cudaFree and cudaMalloc of its first convolutions.
        ("hta_critical_path_alexnet.json.gz", "allocator", 0.66),
    ],
)
def test_what_public_traces_wait_for(
    name: str, kind: str, share: float, single: Callable[[str], Analysis]
) -> None:
    analysis = single(name)
    assert analysis.bottleneck.kind == kind
    assert analysis.split is not None
    assert analysis.split.nanoseconds(kind) / analysis.split.step_ns == pytest.approx(
        share, abs=0.01
    )


def test_ranks_that_wait_for_one_whose_host_the_profiler_slows_say_so() -> None:
    """Without the profiler a step took 12.4 ms: hardly any rank waited."""
    for analysis in run("h200x4_ddp")[:3]:
        assert analysis.bottleneck.kind == "other rank"
        assert "; without the profiler for 0 to 6." in analysis.bottleneck.evidence
