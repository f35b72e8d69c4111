"""Times that no device can have are said; those of real traces are not."""

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
    assert "10 us in all" in sentence


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


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recordings_hold_nothing_impossible(path: Path) -> None:
    assert impossible(kineto.read(path)) == ()


def test_no_device_work_is_not_impossible(build: CaptureBuilder) -> None:
    assert impossible(build.build()) == ()
