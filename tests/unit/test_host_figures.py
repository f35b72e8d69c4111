"""The host's side of a step, against counting every nanosecond."""

import gzip
import json
import random
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.host_events import (
    Compilation,
    GarbageCollection,
    HostEvent,
    LoaderStart,
    LoaderWorkers,
    NextBatch,
    range_name,
)
from gpuprof.collectors.manifest import CollectedGeneration, Compilations
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.host_figures import HostCall, HostFigures

DATA = Path(__file__).resolve().parents[1] / "data"
SHARED = Path(__file__).resolve().parents[3] / "shared"


def host(capture: Capture) -> HostFigures:
    figures = analyze(capture).host
    assert figures is not None
    return figures


def event(build: CaptureBuilder, what: HostEvent, start: int, end: int, **more: Any) -> None:
    text = msgspec.json.encode(what).decode()
    build.range(range_name(what), start, end, domain="gpuprof", host_event=text, **more)


# -- calls -----------------------------------------------------------------------------------------


def test_operators_and_runtime_calls_are_one_tree(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 200)
    linear = build.op("aten::linear", 0, 100)
    build.mm(10, 90, parent_id=linear)
    build.kernel(20, 120, 150)
    build.kernel(40, 150, 180)
    build.op("aten::before", 200, 300)
    figures = host(build.build())
    assert figures.calls == (
        HostCall(name="aten::mm", kind="operator", calls=1, total_ns=80, self_ns=78),
        HostCall(name="aten::linear", kind="operator", calls=1, total_ns=100, self_ns=20),
        HostCall(name="cudaLaunchKernel", kind="runtime", calls=2, total_ns=2, self_ns=2),
    )
    assert figures.outside_ns == 100


def test_an_operator_within_one_of_its_name_is_in_the_total_once(build: CaptureBuilder) -> None:
    outer = build.op("aten::to", 0, 100)
    middle = build.op("aten::_to_copy", 10, 90, parent_id=outer)
    build.op("aten::to", 20, 50, parent_id=middle)
    build.op("aten::to", 0, 30, thread=2)
    figures = host(build.build())
    (to, _) = sorted(figures.calls, key=lambda call: -call.calls)
    assert to == HostCall(name="aten::to", kind="operator", calls=3, total_ns=130, self_ns=80)


@pytest.mark.parametrize("seed", range(4))
def test_each_moment_of_a_thread_is_the_self_time_of_one_call(
    build: CaptureBuilder, seed: int
) -> None:
    chance = random.Random(seed)
    build.step("profiled", 0, 400)
    spans: list[tuple[str, int, int, int]] = []

    def call(start: int, end: int, thread: int, depth: int) -> None:
        name = chance.choice("abcd")
        spans.append((name, start, end, thread))
        if name == "d":
            build.rows["launches"].append(
                {"name": name, "thread": thread, "start_ns": start, "end_ns": end}
            )
            return
        build.op(name, start, end, thread=thread)
        at = start + chance.randint(0, 4)
        while depth < 5 and at < end - 1:
            length = chance.randint(1, end - at)
            call(at, at + length, thread, depth + 1)
            at += length + chance.randint(0, 6)

    for thread in (1, 2):
        for at in range(0, 400, 100):
            call(at + chance.randint(0, 20), at + chance.randint(40, 100), thread, 0)
    build.rows["ops"].sort(key=lambda row: (row["start_ns"], -row["end_ns"]))
    for number, row in enumerate(build.rows["ops"]):
        row["op_id"] = number
    figures = host(build.build())
    self_ns = dict.fromkeys("abcd", 0)
    for thread in (1, 2):
        for moment in range(400):
            # The last to begin is the innermost; of those that begin together the later made one.
            inside = [span for span in spans if span[3] == thread and span[1] <= moment < span[2]]
            if inside:
                self_ns[inside[-1][0]] += 1
    assert {call.name: call.self_ns for call in figures.calls if call.self_ns} == {
        name: ns for name, ns in self_ns.items() if ns
    }
    assert figures.outside_ns == sum(
        not any(start <= moment < end for _, start, end, _ in spans) for moment in range(400)
    )


# -- the queue of launches -------------------------------------------------------------------------


def test_the_queue_is_what_was_launched_and_has_not_begun(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 100)
    build.mm(0, 100)
    # Three launches at 10, 20 and 30, which begin at 40, 50 and 60.
    for launched in (10, 20, 30):
        build.kernel(launched, launched + 30, launched + 40)
    queue = host(build.build()).queue
    assert queue is not None
    # Depth 0 for 10 and 40 ns, 1 for 10 and 10, 2 for 10 and 10, 3 for 10.
    assert (queue.maximum, queue.empty_fraction, queue.median) == (3, 0.5, 0)
    assert queue.median_delay_ns == 30


def test_a_replayed_graph_is_one_launch(build: CaptureBuilder) -> None:
    build.kernel(10, 40, 50)
    for start in (60, 70):
        build.rows["kernels"].append({**build.rows["kernels"][0], "start_ns": start, "end_ns": 80})
    queue = host(build.build()).queue
    assert queue is not None
    assert (queue.maximum, queue.median, queue.empty_fraction) == (1, 1, 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_the_queue_is_that_of_looking_each_nanosecond(build: CaptureBuilder, seed: int) -> None:
    chance = random.Random(seed)
    build.step("profiled", 0, 300)
    build.mm(0, 300)
    at, free = 0, 0
    spans = []
    for _ in range(20):
        at += chance.randint(1, 14)
        start = max(at + 2, free)
        free = start + chance.randint(1, 16)
        build.kernel(at, start, free)
        spans.append((at, start))
    queue = host(build.build()).queue
    depths = [sum(made <= t < begun for made, begun in spans) for t in range(300)]
    assert queue is not None
    assert queue.maximum == max(depths)
    assert queue.median == statistics.median_low(depths)
    assert queue.empty_fraction == pytest.approx(depths.count(0) / 300)


def test_without_launches_there_is_no_queue(build: CaptureBuilder) -> None:
    build.op("aten::mm", 0, 10)
    figures = host(build.build())
    assert (figures.queue, figures.launches_per_s) == (None, None)


def test_launches_a_second_are_those_of_a_step_without_the_profiler(build: CaptureBuilder) -> None:
    build.step("timed", 0, 1000, device_ns=1000)
    build.step("profiled", 1000, 5000)
    build.mm(1000, 2000)
    for launched in (1100, 1200, 1300, 1400):
        build.kernel(launched, launched + 50, launched + 60)
    assert host(build.build()).launches_per_s == pytest.approx(4 / 1000e-9)


def test_a_launch_bound_recording_has_its_launches_and_an_empty_queue() -> None:
    recording = SHARED.joinpath("data", "recordings", "h100_launch_bound.json.gz")
    if not recording.exists():
        pytest.skip("data/recordings/h100_launch_bound.json.gz is absent from ../shared")
    capture = kineto.read(recording)
    figures = host(capture)
    calls = {call.name: call for call in figures.calls}
    # scripts/: 400 tiny relu and add, a sum and .item() in each of three steps.
    assert (calls["aten::relu"].calls, calls["aten::add"].calls) == (600, 600)
    assert calls["cudaLaunchKernel"].calls == 3 * 401
    assert calls["cudaLaunchKernel"].self_ns == calls["cudaLaunchKernel"].total_ns
    assert figures.queue is not None
    assert figures.queue.median == 0
    assert figures.queue.empty_fraction > 0.5


# -- garbage, compilations, loaders ----------------------------------------------------------------


def test_collections_are_those_of_the_steps(build: CaptureBuilder) -> None:
    build.step("timed", 0, 100, garbage_collection_ns=30)
    build.step("timed", 100, 200, garbage_collection_ns=10)
    build.step("profiled", 300, 400)
    event(build, GarbageCollection(generation=0, collected=3), 250, 260)
    event(build, GarbageCollection(generation=0, collected=3), 310, 315)
    event(build, GarbageCollection(generation=2, collected=3), 320, 360)
    none = CollectedGeneration(collections=0, paused_ns=0)
    garbage = host(build.build(garbage_collections=(none, none, none))).garbage
    assert garbage is not None
    assert garbage.timed_step_ns == 20
    assert garbage.collections == (1, 0, 1)
    assert garbage.profiled_ns == 45


def test_where_nobody_counted_collections_they_are_unknown(build: CaptureBuilder) -> None:
    build.step("timed", 0, 100)
    assert host(build.build()).garbage is None


def test_compiling_is_the_time_in_steps_that_any_compilation_takes(build: CaptureBuilder) -> None:
    build.step("profiled", 100, 200)
    build.step("profiled", 200, 300)
    event(build, Compilation(function="f"), 50, 150)
    event(build, Compilation(function="g"), 120, 160)
    event(build, Compilation(function="f", backward=True), 290, 310, thread=2)
    watched = Compilations(compiled=3, recompiled=0, compiling_ns=160)
    assert host(build.build(compilations=watched)).compiling_ns == 60 + 10
    # Of a trace of another tool nobody knows.
    assert host(build.build()).compiling_ns is None


@pytest.mark.parametrize(
    ("cpu", "delay", "storage", "cause"),
    [
        (90, 5, 0, "transform"),
        (5, 90, 0, "core"),
        (5, 5, 4096, "reading"),
        (5, 5, 0, "waiting"),
        (None, None, None, "unknown"),
    ],
)
def test_who_loads_tells_what_a_batch_waits_for(
    build: CaptureBuilder, cpu: int | None, delay: int | None, storage: int | None, cause: str
) -> None:
    build.step("profiled", 0, 1000)
    counts = {"cpu_ns": cpu, "run_delay_ns": delay, "storage_bytes": storage}
    event(build, NextBatch(workers=0, pinned=True, **counts), 100, 200)
    # Two workers over 50 ns.
    event(build, NextBatch(workers=2, pinned=False, cpu_ns=1), 300, 700)
    event(build, NextBatch(workers=2, pinned=False, cpu_ns=1), 1300, 1700)
    event(build, LoaderWorkers(workers=2, **counts), 300, 350)
    event(build, LoaderStart(workers=2, pinned=False), 280, 290)
    several, none = host(build.build()).loaders
    assert (several.workers, several.batches, several.wait_ns) == (2, 1, 400)
    assert (none.workers, none.pinned, none.wait_ns) == (0, True, 100)
    assert (several.starts, several.start_ns, none.starts) == (1, 10, 0)
    assert (several.observed_ns, none.observed_ns) == (100, 100)
    assert several.cause == none.cause == cause
    assert several.cpu_ns == none.cpu_ns == cpu


def test_without_counts_torchs_own_ranges_tell_how_long_batches_took(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    for process, start in (("Single", 100), ("Multi", 300), ("Multi", 5000)):
        iterator = "_SingleProcess" if process == "Single" else "_MultiProcessing"
        name = f"enumerate(DataLoader)#{iterator}DataLoaderIter.__next__"
        build.range(name, start, start + 100)
    one, several = host(build.build()).loaders
    assert [(each.workers, each.wait_ns) for each in (one, several)] == [(0, 100), (None, 100)]
    assert {one.cause, several.cause} == {"unknown"}


# -- recordings ------------------------------------------------------------------------------------


def events_of(recording: str) -> list[dict[str, Any]]:
    content = gzip.decompress((DATA / "kineto" / recording).read_bytes())
    return [event for event in json.loads(content)["traceEvents"] if event.get("ph") == "X"]


@pytest.mark.parametrize(
    "recording", ["h100_block_train_bf16.json.gz", "h100_block_infer_fp16.json.gz"]
)
def test_a_recordings_figures_are_those_of_its_events(recording: str) -> None:
    """Against the trace's own JSON, by a stack of each thread and by looking each microsecond."""
    figures = host(kineto.read(DATA / "kineto" / recording))
    events = events_of(recording)
    # In µs, as written: exact to the ns in a float of this size.
    steps = [
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
    ]
    calls = [
        event
        for event in events
        if event["cat"] in ("cpu_op", "cuda_runtime", "cuda_driver")
        and any(start <= event["ts"] < end for start, end in steps)
    ]
    self_us: dict[str, float] = defaultdict(float)
    for thread in {event["tid"] for event in calls}:
        stack: list[dict[str, Any]] = []
        for event in sorted(calls, key=lambda event: (event["ts"], -event["dur"])):
            if event["tid"] != thread:
                continue
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
                stack.pop()
            self_us[event["name"]] += event["dur"]
            if stack:
                self_us[stack[-1]["name"]] -= event["dur"]
            stack.append(event)
    for call in figures.calls:
        assert call.self_ns == pytest.approx(1000 * self_us[call.name], abs=5 * call.calls)
    launched = {
        event["args"]["correlation"]: event["ts"]
        for event in calls
        if "correlation" in event.get("args", {})
    }
    begun: dict[int, float] = {}
    for event in events:
        key = event.get("args", {}).get("correlation")
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") and key in launched:
            begun[key] = min(begun.get(key, event["ts"]), event["ts"])
    pending = [(launched[key], start) for key, start in begun.items()]
    first, last = steps[0][0], steps[-1][1]
    depths = [
        sum(made <= moment < start for made, start in pending)
        for moment in np.arange(first, last, 7.0)
    ]
    queue = figures.queue
    assert queue is not None
    assert queue.maximum == pytest.approx(max(depths), abs=1)
    assert queue.median == pytest.approx(statistics.median(depths), abs=1)
    assert queue.empty_fraction == pytest.approx(depths.count(0) / len(depths), abs=0.01)
