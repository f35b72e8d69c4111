"""How long steps took, and that the parts of one add up."""

from typing import Any

import pytest
from capture_builder import CaptureBuilder
from hypothesis import given
from hypothesis import strategies as st

from gpuprof.roofline.analysis import (
    Bottleneck,
    RooflinePoint,
    StepSplit,
    StepTimes,
)
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.cost_models.call import MathMode
from gpuprof.roofline.steps.step_times import busy_ns_per_step, split_step, step_times
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.work import find_work


def times_of(build: CaptureBuilder, **process: Any) -> StepTimes:
    return step_times(attribute(build.build(**process)))


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
    assert (times.profiler_stretch, times.relative_spread) == (None, None)


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


def test_streams_that_overlap_count_once(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 100)
    build.kernel(10, 1000, 1100, stream=7)
    build.kernel(20, 1050, 1150, stream=8)
    build.kernel(30, 1200, 1250, stream=8)
    work = find_work(attribute(build.build()), MathMode())
    assert busy_ns_per_step(work) == 200


# -- the split ---------------------------------------------------------------------------------


def point(device_ns: int, roof_ns: int | None, kind: ClassName) -> RooflinePoint:
    return RooflinePoint(
        level="op",
        name="op",
        calls=1,
        device_ns=device_ns,
        device_fraction=0.0,
        roof_ns=roof_ns,
        bottleneck=Bottleneck(kind, "", None),
    )


def make_times(timed: int | None, profiled: int | None) -> StepTimes:
    return StepTimes(
        found_by="",
        warmup=0,
        timed=0 if timed is None else 1,
        profiled=1,
        clock="",
        median_ns=timed,
        profiled_median_ns=profiled,
        profiled_mean_ns=profiled,
    )


def parts(split: StepSplit) -> dict[str, int]:
    return {part.kind: part.nanoseconds for part in split.parts}


POINTS = (
    point(400, 300, "compute"),
    point(200, 50, "memory"),
    point(100, 10, "latency"),
    point(60, None, "unknown"),
)


def test_a_step_is_split_by_class() -> None:
    split = split_step(make_times(1000, 1500), POINTS, 760, steps=1, on_cpu=False)
    assert split is not None
    assert (split.step_ns, split.basis) == (1000, "timed")
    assert parts(split) == {
        "roof": 360,
        "compute": 100,
        "memory": 150,
        "latency": 90,
        "unknown": 60,
        "launch": 240,
    }


def test_several_profiled_steps_are_one_steps_mean() -> None:
    points = tuple(
        point(3 * p.device_ns, p.roof_ns and 3 * p.roof_ns, p.bottleneck.kind) for p in POINTS
    )
    split = split_step(make_times(1000, 1500), points, 760, steps=3, on_cpu=False)
    assert split == split_step(make_times(1000, 1500), POINTS, 760, steps=1, on_cpu=False)


def test_work_above_its_roof_is_at_its_roof() -> None:
    split = split_step(
        make_times(1000, None), (point(100, 500, "compute"),), 100, steps=1, on_cpu=False
    )
    assert split is not None
    assert (parts(split)["roof"], parts(split)["compute"], split.idle_ns) == (100, 0, 900)


def test_overlapping_work_shrinks_in_proportion() -> None:
    split = split_step(make_times(1000, None), POINTS, 380, steps=1, on_cpu=False)
    assert split is not None
    assert (parts(split)["compute"], parts(split)["memory"]) == (50, 75)
    assert split.idle_ns == 620


def test_a_cpus_operators_are_set_against_the_profiled_step() -> None:
    split = split_step(make_times(1000, 1500), POINTS, 760, steps=1, on_cpu=True)
    assert split is not None
    assert (split.basis, split.step_ns) == ("profiled", 1500)


def test_work_that_does_not_fit_the_timed_step_is_set_against_the_profiled_one() -> None:
    assert split_step(make_times(700, None), POINTS, 760, steps=1, on_cpu=False) is None
    split = split_step(make_times(700, 900), POINTS, 760, steps=1, on_cpu=False)
    assert split is not None
    assert (split.basis, split.step_ns, split.idle_ns) == ("profiled", 900, 140)


def test_device_work_that_is_a_little_longer_fills_the_step() -> None:
    split = split_step(make_times(750, None), POINTS, 760, steps=1, on_cpu=False)
    assert split is not None
    assert (split.basis, split.idle_ns) == ("timed", 0)
    assert sum(parts(split).values()) == 750


def test_without_a_step_time_or_work_there_is_no_split() -> None:
    assert split_step(make_times(None, None), POINTS, 760, steps=1, on_cpu=False) is None
    assert split_step(make_times(1000, None), (), 0, steps=1, on_cpu=False) is None


kinds = st.sampled_from(["compute", "memory", "latency"])
some_points = st.lists(
    st.one_of(
        st.builds(point, st.integers(0, 10**10), st.integers(0, 10**10), kinds),
        st.builds(point, st.integers(0, 10**10), st.none(), st.just("unknown")),
    ),
    min_size=1,
    max_size=12,
)


@given(
    some_points,
    st.integers(1, 10**10) | st.none(),
    st.integers(1, 10**10),
    st.floats(0, 1),
    st.integers(1, 7),
    st.booleans(),
)
def test_the_parts_add_up_to_the_step_exactly(
    points: list[RooflinePoint],
    timed: int | None,
    profiled: int,
    overlap: float,
    steps: int,
    on_cpu: bool,
) -> None:
    busy = round(sum(p.device_ns for p in points) / steps * (1 - overlap))
    split = split_step(make_times(timed, profiled), tuple(points), busy, steps=steps, on_cpu=on_cpu)
    assert split is not None
    assert sum(parts(split).values()) == split.step_ns
    assert min(parts(split).values()) >= 0


def test_rounding_takes_nothing_from_what_is_at_the_roof() -> None:
    points = tuple(point(1, 0, kind) for kind in ("compute", "memory", "latency"))  # type: ignore[arg-type]
    split = split_step(make_times(10, None), points, 2, steps=1, on_cpu=False)
    assert split is not None
    assert sum(parts(split).values()) == 10
    assert min(parts(split).values()) >= 0


def test_an_analysis_splits_its_step(build: CaptureBuilder) -> None:
    build.step("timed", -100, -50, device_ns=2000)
    build.step("profiled", 0, 900)
    build.mm(0, 50, 4096, 32, 4096)
    build.kernel(10, 100, 1100)
    build.op("mylib::secret", 60, 90)
    build.kernel(70, 1000, 1300, stream=8)
    analysis = analyze(build.build())
    assert analysis.split is not None
    assert sum(parts(analysis.split).values()) == analysis.split.step_ns == 2000
    # Both streams together are busy from 100 to 1300.
    assert analysis.split.idle_ns == 800
    assert analysis.bottleneck.kind == "launch"
