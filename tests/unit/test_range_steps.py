"""Steps of traces that mark none themselves, from the user ranges around them."""

from pathlib import Path

import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import nsys
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.range_steps import with_evident_steps, with_steps_of_range

DATA = Path(__file__).parents[1] / "data" / "nsys"


def steps_of(capture: Capture) -> list[tuple[str, int, int]]:
    return list(capture.steps.select("phase", "start_ns", "end_ns").iter_rows())


def launch(build: CaptureBuilder, *times: int) -> None:
    for time in times:
        build.kernel(time, time + 1, time + 5)


def test_a_step_lasts_from_its_range_to_the_next(build: CaptureBuilder) -> None:
    for start in (100, 200, 300):
        build.range("step", start, start + 80)
        launch(build, start + 10, start + 90 if start < 300 else start + 20)
    capture = with_steps_of_range(build.build(), "step")
    assert steps_of(capture) == [
        ("profiled", 100, 200),
        ("profiled", 200, 300),
        ("profiled", 300, 380),
    ]
    assert capture.processes[0].steps_found_by == "ranges named 'step'"
    # What runs behind a range is of the step all the same.
    assert attribute(capture).kernels["step"].to_list() == [0, 0, 1, 1, 2, 2]


def test_what_runs_between_two_steps_for_longer_than_one_is_of_none(build: CaptureBuilder) -> None:
    for start in (100, 200, 900):
        build.range("step", start, start + 80)
    assert [end for _, _, end in steps_of(with_steps_of_range(build.build(), "step"))] == [
        200,
        280,
        980,
    ]


def test_slow_first_steps_are_warm_up(build: CaptureBuilder) -> None:
    starts = (0, 1000, 1500, 1600, 1700, 2500, 2600, 2700, 2800)
    for start, end in zip(starts, (*starts[1:], 2900), strict=True):
        build.range("step", start, end)
    phases = [phase for phase, _, _ in steps_of(with_steps_of_range(build.build(), "step"))]
    # A slow step later on is one of the program's.
    assert phases == ["warmup"] * 2 + ["profiled"] * 7


def test_a_numbered_name_is_one_name_and_the_exact_one_goes_first(build: CaptureBuilder) -> None:
    for number in range(3):
        build.range(f"step {number}", number * 100, number * 100 + 90)
        build.range("step", number * 100 + 10, number * 100 + 20)
        build.range("step 1 of many", number * 100 + 30, number * 100 + 40)
    exact = with_steps_of_range(build.build(), "step")
    assert [start for _, start, _ in steps_of(exact)] == [10, 110, 210]
    build.rows["ranges"] = [row for row in build.rows["ranges"] if row["name"] != "step"]
    numbered = with_steps_of_range(build.build(), "step")
    assert [start for _, start, _ in steps_of(numbered)] == [0, 100, 200]


def test_a_range_within_one_of_its_name_or_without_an_end_is_no_step(build: CaptureBuilder) -> None:
    build.range("step", 100, 180)
    build.range("step", 120, 160)
    build.range("step", 200, 280)
    build.range("step", 300, 380)
    build.rows["ranges"].append({**build.rows["ranges"][-1], "start_ns": 400, "end_ns": None})
    build.range("step", 130, 140, thread=2)
    assert [start for _, start, _ in steps_of(with_steps_of_range(build.build(), "step"))] == [
        100,
        200,
        300,
    ]


def test_a_name_that_is_none_is_told_with_those_that_are(build: CaptureBuilder) -> None:
    build.range("layer 1", 0, 50)
    build.range("layer 2", 50, 90)
    build.range("step", 0, 95)
    with pytest.raises(ValueError, match=r"'step' \(1\), 'layer #' \(2\)"):
        with_steps_of_range(build.build(), "iteration")
    with pytest.raises(ValueError, match="a stored capture keeps its steps"):
        with_steps_of_range(attribute(build.build()), "step")
    with pytest.raises(ValueError, match="no range was recorded"):
        with_steps_of_range(CaptureBuilder().build(), "step")


def two_layers_a_step(build: CaptureBuilder, steps: int, name: str = "step {}") -> None:
    build.range("training", 0, steps * 100 + 1)
    for number in range(steps):
        start = number * 100 + 1
        build.range(name.format(number), start, start + 99)
        for layer in (0, 50):
            build.range("layer", start + layer, start + layer + 49)
            launch(build, start + layer + 5, start + layer + 15)


def test_ranges_that_hold_nearly_all_launches_are_evidently_steps(build: CaptureBuilder) -> None:
    two_layers_a_step(build, 4)
    capture = with_evident_steps(build.build())
    # Layers hold them too, but within steps.
    assert capture.processes[0].steps_found_by == "ranges named 'step #'"
    assert [start for _, start, _ in steps_of(capture)] == [1, 101, 201, 301]


def test_layers_of_two_steps_are_no_steps(build: CaptureBuilder) -> None:
    two_layers_a_step(build, 2)
    assert with_evident_steps(build.build()).steps.is_empty()


def test_ranges_that_leave_launches_out_are_no_steps(build: CaptureBuilder) -> None:
    for start in (0, 100, 200, 300):
        build.range("forward", start, start + 40)
        launch(build, start + 10, start + 20, start + 60)
    assert with_evident_steps(build.build()).steps.is_empty()
    # But they are where they are asked for.
    assert with_steps_of_range(build.build(), "forward").steps.height == 4


def test_a_trace_with_steps_keeps_them_unless_a_name_is_given(build: CaptureBuilder) -> None:
    two_layers_a_step(build, 4)
    build.step("profiled", 0, 400)
    assert with_evident_steps(build.build()).steps.height == 1
    assert with_steps_of_range(build.build(), "step").steps.height == 4


def test_the_steps_of_a_recording_are_its_ranges() -> None:
    capture = nsys.read(DATA / "h200_block.sqlite.gz")
    analysis = analyze(with_evident_steps(capture))
    # By benchmarks/step_by_hand.py, which uses none of this.
    assert (analysis.steps.warmup, analysis.steps.profiled) == (1, 5)
    assert analysis.steps.definition == "device period"
    assert analysis.steps.length_ns == pytest.approx(8.963e6, rel=1e-3)
    pushes = capture.ranges.filter(pl.col("name").str.starts_with("step"))["start_ns"]
    assert len(pushes) == 6
    assert analysis.steps.launches_per_step == 72
