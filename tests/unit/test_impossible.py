"""Times that no device can have are said; those of real traces are not."""

import json
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.impossible import impossible

US = 1000
RECORDED = sorted((Path(__file__).parents[1] / "data" / "kineto").glob("h100_*.json.gz"))


def said(build: CaptureBuilder) -> tuple[str, ...]:
    found = impossible(build.build())
    assert set(found) <= set(analyze(build.build()).warnings)
    return found


def test_work_in_order_after_its_launch_is_possible(build: CaptureBuilder) -> None:
    for number in range(3):
        start = 10 * US * (number + 1)
        build.kernel(start - 5 * US, start, start + 10 * US)
        # Of another stream.
        build.kernel(start - 4 * US, start, start + 8 * US, stream=8)
    assert said(build) == ()


def test_work_that_overlaps_on_one_stream_is_said_with_its_size(build: CaptureBuilder) -> None:
    build.kernel(0, 10 * US, 40 * US)
    build.kernel(US, 30 * US, 60 * US)
    build.kernel(2 * US, 60 * US, 80 * US)
    (sentence,) = said(build)
    assert sentence.startswith("1 piece of device work begins before the one ahead of it")
    assert "10 µs in all" in sentence


def test_nodes_of_one_graph_replay_may_overlap(build: CaptureBuilder) -> None:
    build.kernel(0, 10 * US, 40 * US)
    build.kernel(US, 30 * US, 60 * US)
    del build.rows["launches"][1:]
    build.rows["kernels"][1]["correlation"] = 1
    assert said(build) == ()


def test_microseconds_that_were_rounded_are_no_overlap(build: CaptureBuilder) -> None:
    build.kernel(0, 10 * US, 11 * US)
    build.kernel(US, 10 * US, 12 * US)
    assert said(build) == ()


def test_work_before_its_launch_is_said(build: CaptureBuilder) -> None:
    build.kernel(500 * US, 10 * US, 40 * US)
    (sentence,) = (w for w in analyze(build.build()).warnings if "launched it" in w)
    assert "1 piece of device work begins before the host launched it, by up to 490 us" in sentence


@pytest.mark.parametrize("times", [(0, 0), (5 * US, 9 * US)])
def test_a_trace_without_durations_is_said(build: CaptureBuilder, times: tuple[int, int]) -> None:
    for start in times:
        build.kernel(0, start, start)
    (sentence,) = said(build)
    assert sentence.startswith("no piece of device work has a duration")


def test_work_of_more_than_a_day_is_said_with_its_length(build: CaptureBuilder) -> None:
    build.kernel(0, 10 * US, 40 * US)
    build.kernel(US, 50 * US, 50 * US + 36 * 3600 * 10**9)
    (sentence,) = said(build)
    assert sentence.startswith("1 piece of device work takes more than a day, up to 1.5 days")


def trace(path: Path, *events: dict[str, object]) -> Path:
    text = {"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]}
    path.write_text(json.dumps(text))
    return path


def kernel(start: int, duration: int) -> dict[str, object]:
    args = {"device": 0, "stream": 7, "correlation": start}
    return {"cat": "kernel", "name": "k", "ts": start, "dur": duration, "args": args}


@pytest.mark.parametrize("marks", [(), ({"cat": "Trace", "ph": "i", "name": "mark", "ts": 5},)])
def test_what_ends_after_the_recording_stopped_is_said_with_number_and_size(
    tmp_path: Path, marks: tuple[dict[str, object], ...]
) -> None:
    span = {"cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "ts": 0, "dur": 100}
    launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 2}
    inside = trace(tmp_path / "inside.json", span, launch, kernel(10, 90), *marks)
    warnings = kineto.read(inside).processes[0].warnings
    assert not any("recording stopped" in warning or "malformed" in warning for warning in warnings)
    late = trace(tmp_path / "late.json", span, launch, kernel(10, 100), kernel(120, 900), *marks)
    (sentence,) = (w for w in kineto.read(late).processes[0].warnings if "stopped" in w)
    assert sentence.startswith("2 pieces of device work end after the recording stopped, by up to")
    assert "920 us" in sentence


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recordings_hold_nothing_impossible(path: Path) -> None:
    capture = kineto.read(path)
    assert impossible(capture) == ()
    assert not any("recording stopped" in warning for warning in capture.processes[0].warnings)


def test_no_device_work_is_not_impossible(build: CaptureBuilder) -> None:
    assert impossible(build.build()) == ()
