"""Which profiled steps stand for a step, and what its length is."""

from dataclasses import replace

import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.manifest import Schedule
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models.call import MathMode
from gpuprof.roofline.steps.stretch import Stretch, device_runs_behind, profiled_stretch, step_ends
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.work import find_work


def stretch_of(capture: Capture) -> Stretch | None:
    behind = device_runs_behind(step_ends(capture))
    capture = attribute(capture)
    return profiled_stretch(capture, find_work(capture, MathMode()), behind=behind)


def queued_ahead(build: CaptureBuilder, *, first_ns: int = 1000, steps: int = 3) -> None:
    """Steps that the host queues in 100 ns each and the device does in 1000 ns, without gaps."""
    for step in range(steps):
        build.step("profiled", 100 * step, 100 * (step + 1))
        for kernel in range(2):
            start = first_ns + 1000 * step + 500 * kernel
            build.kernel(100 * step + 10 * (kernel + 1), start, start + 500)


def test_where_the_device_runs_behind_a_step_is_the_devices_period(build: CaptureBuilder) -> None:
    queued_ahead(build)
    found = stretch_of(build.build())
    assert found == Stretch("device period", (1000, 1000), (1, 2), (2000, 4000))
    analysis = analyze(build.build())
    assert (analysis.steps.definition, analysis.steps.length_ns) == ("device period", 1000)
    assert analysis.split is not None
    assert (analysis.split.basis, analysis.split.step_ns) == ("device period", 1000)
    assert (analysis.split.idle_ns, analysis.split.clipped_ns) == (0, 0)


def test_where_the_host_waits_for_the_device_a_step_is_the_hosts_range(
    build: CaptureBuilder,
) -> None:
    for step in range(3):
        build.step("profiled", 1000 * step, 1000 * step + 950)
        # Done just after the mark, as where the host's last call is a copy to it.
        build.kernel(1000 * step + 10, 1000 * step + 100, 1000 * step + 955)
    found = stretch_of(build.build())
    assert found == Stretch("host range", (950, 950, 950), (0, 1, 2))


def test_the_first_period_has_no_point_before_it_to_begin_at(build: CaptureBuilder) -> None:
    # The device was still busy with what came before: the first step says nothing of the others.
    queued_ahead(build, first_ns=70_000)
    found = stretch_of(build.build())
    assert found is not None
    assert found.lengths_ns == (1000, 1000)


def test_what_the_host_does_last_in_a_step_is_in_each_period(build: CaptureBuilder) -> None:
    """A loader of 600 ns in each step: with nothing queued, the device ends before its host."""
    build.step("timed", -1000, 0, device_ns=1000)
    for step in range(3):
        build.step("profiled", 1000 * step, 1000 * (step + 1))
        build.kernel(1000 * step + 50, 1000 * step + 100, 1000 * step + 400)
    found = stretch_of(build.build())
    assert found == Stretch("device period", (1000, 1000, 1000), (1, 2, 3))
    idle = analyze(build.build()).idle
    assert idle is not None
    assert idle.profiled_ns == 700
    assert [sum(part.nanoseconds for part in step) for step in idle.profiled_steps] == [700] * 3


def test_one_step_that_is_queued_ahead_is_as_long_as_its_device_work(build: CaptureBuilder) -> None:
    queued_ahead(build, steps=1)
    assert stretch_of(build.build()) == Stretch("device period", (1000,), (0,))


def test_one_step_with_less_device_work_than_its_range_is_the_range(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    build.kernel(900, 950, 1300)
    assert stretch_of(build.build()) == Stretch("host range", (1000,), (0,))


def test_without_marks_the_whole_trace_is_one_step(build: CaptureBuilder) -> None:
    build.kernel(10, 100, 300)
    build.kernel(20, 900, 1100)
    assert stretch_of(build.build()) == Stretch("whole trace", (1000,))
    analysis = analyze(build.build())
    assert (analysis.steps.definition, analysis.steps.profiled) == ("whole trace", 0)
    assert analysis.split is not None
    assert (analysis.split.step_ns, analysis.split.idle_ns) == (1000, 600)


def test_a_trace_without_device_work_has_no_step(build: CaptureBuilder) -> None:
    build.op("aten::mm", 0, 10)
    assert stretch_of(build.build()) is None
    assert analyze(build.build()).split is None


def test_an_event_on_the_device_bounds_the_profiled_steps_of_a_live_run(
    build: CaptureBuilder,
) -> None:
    build.step("timed", 0, 50, device_ns=900)
    build.step("profiled", 10_000, 10_100)
    build.step("profiled", 10_100, 10_200)
    build.kernel(10_010, 10_300, 11_000)
    build.kernel(10_110, 11_000, 12_000)
    assert stretch_of(build.build()) == Stretch("device period", (1000, 1000), (1, 2))


def rank_of(number: int, capture: Capture) -> Capture:
    rank = pl.lit(number, pl.Int32).alias("rank")
    tables = {name: frame.with_columns(rank) for name, frame in capture.tables().items()}
    process = replace_rank(capture, number)
    return Capture(process.manifest, process.processes, **tables)


def replace_rank(capture: Capture, number: int) -> Capture:
    from msgspec.structs import replace as with_fields

    return replace(
        capture,
        manifest=with_fields(capture.manifest, ranks=(number,)),
        processes=tuple(with_fields(p, rank=number, world_size=2) for p in capture.processes),
    )


def test_ranks_of_one_run_have_one_definition() -> None:
    ahead, level = CaptureBuilder(), CaptureBuilder()
    queued_ahead(ahead)
    for step in range(3):
        level.step("profiled", 1000 * step, 1000 * (step + 1))
        level.kernel(1000 * step + 10, 1000 * step + 100, 1000 * step + 900)
    capture = join([rank_of(0, ahead.build()), rank_of(1, level.build())])
    assert [analyze(capture, rank=rank).steps.definition for rank in (0, 1)] == [
        "device period",
        "device period",
    ]
    assert analyze(level.build()).steps.definition == "host range"


def cut(build: CaptureBuilder, *pieces: int) -> None:
    for step, number in enumerate(pieces):
        build.step("profiled", 1000 * step, 1000 * (step + 1))
        for kernel in range(number):
            start = 1000 * step + 200 * kernel
            build.kernel(start + 10, start + 20, start + 100)


@pytest.mark.parametrize(
    ("pieces", "left_out"),
    [
        ((4, 4, 0), True),
        ((4, 4, 3), True),
        ((4, 4, 4), False),
        # One step shows nothing of others, and steps that differ may differ again.
        ((4, 3), False),
        ((4, 1), True),
        ((4, 5, 2), False),
        ((4, 5, 1), True),
        ((1, 4, 4), False),
    ],
)
def test_a_last_step_that_is_cut_off_is_left_out_and_said(
    build: CaptureBuilder, pieces: tuple[int, ...], left_out: bool
) -> None:
    cut(build, *pieces)
    analysis = analyze(build.build())
    assert analysis.steps.profiled == len(pieces) - left_out
    said = [warning for warning in analysis.warnings if "cut off" in warning]
    assert bool(said) == left_out
    if left_out:
        fewest = min(pieces[:-1])
        assert f"it has {pieces[-1]} pieces of device work, each other one {fewest} or" in said[0]
        assert analysis.exposed is not None
        assert analysis.exposed.busy_ns == round(80 * sum(pieces[:-1]) / (len(pieces) - 1))
        assert analysis.coverage.outside_ns == 80 * pieces[-1]


def test_a_short_last_step_that_gpuprof_itself_ended_counts(build: CaptureBuilder) -> None:
    cut(build, 4, 4, 1)
    assert analyze(build.build(schedule=Schedule())).steps.profiled == 3


def test_one_step_begins_on_the_device_where_earlier_work_ends(build: CaptureBuilder) -> None:
    # Queued before the recording began, and so without a launch in it.
    build.kernel(0, 500, 1400)
    build.rows["launches"].clear()
    build.step("profiled", 1000, 2000)
    build.kernel(1100, 1450, 1700)
    build.kernel(1200, 1700, 2100)
    # Their correlation ids are those of their launches, not of the first kernel's.
    for number, (kernel, launch) in enumerate(
        zip(build.rows["kernels"][1:], build.rows["launches"], strict=True)
    ):
        kernel["correlation"] = launch["correlation"] = 10 + number
    assert stretch_of(build.build()) == Stretch("device period", (700,), (0,))
