"""How long steps took, and by which definition."""

from typing import Any

import pytest
from capture_builder import CaptureBuilder

from gpuprof.roofline.cost_models.call import MathMode
from gpuprof.roofline.step_figures import StepTimes
from gpuprof.roofline.steps.step_times import step_times
from gpuprof.roofline.steps.stretch import device_runs_behind, profiled_stretch, step_ends
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.work import find_work


def times_of(build: CaptureBuilder, **process: Any) -> StepTimes:
    capture = attribute(build.build(**process))
    work = find_work(capture, MathMode())
    stretch = profiled_stretch(capture, work, behind=device_runs_behind(step_ends(capture)))
    return step_times(capture, stretch)


def test_device_times_of_the_timed_steps_are_the_step_times(build: CaptureBuilder) -> None:
    build.step("warmup", 0, 900, device_ns=900)
    for index, device_ns in enumerate((100, 104, 96, 130)):
        build.step("timed", 1000 * index, 1000 * index + 200, device_ns=device_ns)
    times = times_of(build, steps_found_by="optimizer steps (SGD)")
    assert (times.found_by, times.clock) == ("optimizer steps (SGD)", "CUDA events")
    assert (times.warmup, times.timed, times.profiled) == (1, 4, 0)
    assert times.samples_ns == (100, 104, 96, 130)
    assert (times.median_ns, times.minimum_ns, times.maximum_ns) == (102, 96, 130)
    assert times.host_median_ns == 200
    # Quartiles of 96, 100, 104, 130 are 99 and 110.5.
    assert times.relative_spread == pytest.approx(11.5 / 102)
    assert times.profiler_stretch is None


def test_without_device_times_the_hosts_clock_counts(build: CaptureBuilder) -> None:
    build.step("timed", 0, 200, device_ns=100)
    build.step("timed", 200, 500)
    times = times_of(build)
    assert (times.clock, times.samples_ns, times.median_ns) == ("host clock", (200, 300), 250)


def test_without_timed_steps_the_profiled_ones_are_shown_and_named(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 200)
    times = times_of(build)
    assert (times.clock, times.median_ns) == ("host clock under the profiler", 200)
    assert (times.definition, times.length_ns) == ("host range", 200)
    assert (times.profiler_stretch, times.relative_spread) == (None, None)


def test_a_step_is_the_median_of_timed_ones_and_the_mean_of_profiled_ones(
    build: CaptureBuilder,
) -> None:
    for length in (100, 100, 400):
        build.step("profiled", 1000, 1000 + length)
    assert times_of(build).length_ns == 200
    for length in (50, 60, 90):
        build.step("timed", 0, length, device_ns=length)
    times = times_of(build)
    assert (times.definition, times.length_ns) == ("timed", 60)


def test_without_steps_nothing_is_known(build: CaptureBuilder) -> None:
    times = times_of(build)
    assert (times.median_ns, times.minimum_ns, times.maximum_ns) == (None, None, None)
    assert (times.samples_ns, times.tokens_per_s, times.launches_per_step) == ((), None, None)
    assert times.found_by == "nothing in the trace marks steps"


def test_the_stretch_compares_device_with_device(build: CaptureBuilder) -> None:
    build.step("timed", 0, 50, device_ns=100)
    build.step("profiled", 1000, 1010)
    build.step("profiled", 1010, 1020)
    # The host runs ahead: the second step's work ends long after its host did.
    build.kernel(1005, 1010, 1120)
    build.kernel(1015, 1120, 1230)
    times = times_of(build)
    assert times.profiled_median_ns == round((120 + 110) / 2)
    assert times.profiler_stretch == pytest.approx(0.15)
    assert times.launches_per_step == 1


def test_the_stretch_of_host_times_compares_host_with_host(build: CaptureBuilder) -> None:
    build.step("timed", 0, 100)
    build.step("profiled", 1000, 1150)
    times = times_of(build)
    assert (times.profiled_median_ns, times.profiler_stretch) == (150, pytest.approx(0.5))


def test_tokens_a_second_come_from_the_timed_steps(build: CaptureBuilder) -> None:
    build.step("timed", 0, 200, tokens=1000)
    build.step("timed", 200, 400, tokens=1000)
    build.step("profiled", 400, 900, tokens=9999)
    assert times_of(build).tokens_per_s == pytest.approx(1000 / 200e-9)


def test_all_kernels_of_a_graph_replay_are_one_launch(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 100)
    build.kernel(10, 1000, 1010)
    build.kernel(20, 1010, 1020)
    build.rows["kernels"][1]["correlation"] = 1
    assert times_of(build).launches_per_step == 1
