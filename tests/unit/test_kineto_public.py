"""Every public trace equals what Python's json module and plain loops say about it."""

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.roofline.work.attribution import attribute

SHARED = Path(__file__).parents[3] / "shared" / "data"
FILES = sorted(
    [*(SHARED / "public" / "kineto").glob("*.json.gz"), *(SHARED / "recordings").glob("*.json.gz")]
)
# Of 2023, when the external ids of device events were those of runtime calls.
EARLIER_IDS = {"param_linear_kineto.json.gz", "param_resnet_kineto.json.gz"}
DEVICE_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
OP_CATEGORIES = {"cpu_op", "operator"}
LAUNCH_CATEGORIES = {"cuda_runtime", "cuda_driver", "runtime"}

pytestmark = pytest.mark.skipif(not FILES, reason="the public traces of ../shared are absent")


def nanoseconds(value: int | Decimal) -> int:
    return round(Decimal(value) * 1000)


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
def trace(request: pytest.FixtureRequest) -> Trace:
    path: Path = request.param
    return Trace(path.name, events(path), attribute(kineto.read(path)))


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
    path = SHARED / "public" / "kineto" / "param_dlrm_kineto.tar.gz"
    if not path.exists():
        pytest.skip("the public traces of ../shared are absent")
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
def test_busy_and_idle_time_equal_those_of_hta(name: str) -> None:
    capture = attribute(kineto.read(SHARED / "public" / "kineto" / name))
    kernels = capture.kernels.filter(pl.col("step") != capture.steps["index"].max())
    compute = kernels.filter(pl.col("kind") == "kernel")
    busy, computing = (
        union(list(frame.select("start_ns", "end_ns").iter_rows())) for frame in (kernels, compute)
    )
    whole = kernels["end_ns"].max() - kernels["start_ns"].min()
    found = (whole - busy, computing, busy - computing, whole)
    assert found == tuple(1000 * value for value in HTA_BREAKDOWN[name])
