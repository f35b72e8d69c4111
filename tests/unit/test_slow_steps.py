"""Percentiles of all steps, outliers, and what differed in them."""

import random
from io import StringIO

import msgspec
import numpy as np
import pytest
from capture_builder import CaptureBuilder
from rich.console import Console

from gpuprof.collectors.watched_steps import StepBlock, WatchedStep, WatchedSteps
from gpuprof.reports.html.page import render_html
from gpuprof.reports.html.run_plot import make_run_plot
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.length_distribution import (
    common_period,
    outlier_limit_ns,
    percentiles,
    quantile,
)
from gpuprof.roofline.slow_step_figures import SlowSteps
from gpuprof.roofline.slow_steps.causes import DeviceReading, differences, ordinary_step

MS = 1_000_000
USUAL = WatchedStep(
    index=0,
    start_ns=0,
    host_ns=10 * MS,
    device_ns=10 * MS,
    processor_ns=9 * MS,
    run_delay_ns=0,
    garbage_collection_ns=0,
    loader_ns=MS // 2,
)

UNSAMPLED = DeviceReading()


@pytest.mark.parametrize("count", [1, 2, 7, 20, 101, 1000])
def test_quantiles_are_those_of_numpy(count: int) -> None:
    numbers = random.Random(count)
    lengths = sorted(numbers.randrange(10**6, 10**7) for _ in range(count))
    counted = [(length, 1) for length in lengths]
    for fraction in (0.0, 0.25, 0.5, 0.95, 1.0):
        expected = float(np.percentile(lengths, fraction * 100))
        assert quantile(counted, fraction) == pytest.approx(expected, abs=0.6)


@pytest.mark.parametrize(
    ("steps", "fractions"),
    [(1, []), (2, [0.5]), (19, [0.5]), (20, [0.5, 0.95]), (99, [0.5, 0.95]), (100, None)],
)
def test_a_percentile_takes_enough_steps(steps: int, fractions: list[float] | None) -> None:
    found = [each.fraction for each in percentiles([(5, steps)])]
    assert found == ([0.5, 0.95, 0.99] if fractions is None else fractions)


def test_steps_that_vary_a_little_have_no_outliers() -> None:
    numbers = random.Random(1)
    normal = sorted(round(numbers.gauss(10 * MS, MS // 10)) for _ in range(10_000))
    assert outlier_limit_ns([(length, 1) for length in normal]) > normal[-1]
    # Equal ones have a fence too.
    assert outlier_limit_ns([(100, 50), (101, 50)]) == 105


def test_outliers_that_recur_have_a_period() -> None:
    assert common_period([99, 199, 299, 499, 799, 999]) == 100
    assert common_period([99, 199, 299, 499, 799]) is None
    assert common_period([99, 199, 299, 499, 799, 1000]) is None
    assert common_period([]) is None


def causes_of(
    step: WatchedStep, reading: DeviceReading = UNSAMPLED, *, on_device: bool = True
) -> dict[str, int]:
    ordinary = ordinary_step([USUAL, USUAL], 10 * MS, 1755)
    length = step.device_ns if on_device else step.host_ns
    assert length is not None
    found = differences(step, length, ordinary, reading, on_device=on_device)
    assert sum(part.longer_ns for part in found) <= max(0, length - 10 * MS)
    return {part.cause: part.longer_ns for part in found}


def slower(by_ns: int, **more: int | None) -> WatchedStep:
    values = {"host_ns": USUAL.host_ns + by_ns, "device_ns": 10 * MS + by_ns, **more}
    return msgspec.structs.replace(USUAL, **values)


def test_an_ordinary_step_needs_no_reason() -> None:
    assert causes_of(USUAL) == {}
    assert causes_of(slower(-MS)) == {}


def test_each_cause_explains_its_part() -> None:
    collected = slower(50 * MS, garbage_collection_ns=40 * MS, processor_ns=59 * MS)
    assert causes_of(collected) == {
        "garbage collection": 40 * MS,
        "the host, or its wait for the device": 10 * MS,
    }
    assert causes_of(collected, on_device=False) == {
        "garbage collection": 40 * MS,
        "more work of the host": 10 * MS,
    }
    crowded = slower(20 * MS, run_delay_ns=20 * MS)
    assert causes_of(crowded) == {"waiting for a core": 20 * MS}
    loading = slower(30 * MS, loader_ns=USUAL.loader_ns + 30 * MS)  # type: ignore[operator]
    assert causes_of(loading) == {"data loader": 30 * MS}
    asleep = slower(30 * MS)
    assert causes_of(asleep) == {"blocked on the host": 30 * MS}


def test_causes_that_overlap_explain_no_more_than_there_is() -> None:
    step = slower(30 * MS, garbage_collection_ns=25 * MS, run_delay_ns=20 * MS)
    assert causes_of(step) == {"garbage collection": 25 * MS, "waiting for a core": 5 * MS}


def test_a_host_that_took_as_long_as_ever_leaves_the_device() -> None:
    step = slower(0, device_ns=13 * MS)
    assert causes_of(step) == {"longer device work": 3 * MS}
    # At 1404 of 1755 MHz an ordinary step takes a quarter longer.
    throttled = DeviceReading(1404, ("hardware thermal slowdown",))
    assert causes_of(step, throttled) == {
        "lower device clock": 5 * MS // 2,
        "longer device work": MS // 2,
    }
    # So does a host that waits for its device in each step, and is as late as that.
    waiting = slower(3 * MS, processor_ns=12 * MS)
    assert causes_of(waiting, throttled) == {
        "lower device clock": 5 * MS // 2,
        "the host, or its wait for the device": MS // 2,
    }


def test_what_is_not_known_explains_nothing() -> None:
    unknown = slower(
        30 * MS, processor_ns=None, run_delay_ns=None, garbage_collection_ns=None, loader_ns=None
    )
    assert causes_of(unknown) == {"the host": 30 * MS}


def watched_run() -> WatchedSteps:
    """10 000 steps of 10 ms; every thousandth takes 60 ms, for a collection; a slow-down later."""
    slow = [
        msgspec.structs.replace(
            slower(50 * MS, garbage_collection_ns=48 * MS, processor_ns=59 * MS),
            index=1000 * number + 999,
            start_ns=(1000 * number + 999) * 10 * MS,
            device_start_ns=(1000 * number + 999) * 10 * MS,
        )
        for number in range(10)
    ]
    return WatchedSteps(
        on_device=True,
        steps_per_mark=1,
        marked=10_000,
        total_ns=9990 * 10 * MS + 10 * 60 * MS,
        histogram=((10 * MS, 9990), (60 * MS, 10)),
        accuracy=0.0025,
        slowest=tuple(slow),
        sample=(USUAL,) * 100,
        time_line=tuple(
            StepBlock(
                index=500 * number,
                start_ns=500 * number * 10 * MS,
                device_start_ns=500 * number * 10 * MS,
                marked=500,
                total_ns=500 * 10 * MS + (number % 2) * 50 * MS,
                longest_ns=60 * MS if number % 2 else 10 * MS,
            )
            for number in range(20)
        ),
        mark_ns=20_000,
    )


@pytest.fixture
def watched_slow_steps(build: CaptureBuilder) -> tuple[CaptureBuilder, WatchedSteps]:
    for second in range(100):
        throttled = second >= 50
        build.rows["samples"].append(
            {
                "time_ns": second * 1000 * MS,
                "device": 0,
                "sm_clock_mhz": 1410 if throttled else 1755,
                "throttle_reasons": 0x20 if throttled else 0,
            }
        )
    return build, watched_run()


def found_in(watched: tuple[CaptureBuilder, WatchedSteps]) -> SlowSteps:
    build, run = watched
    analysis = analyze(build.build(watched_steps=run))
    assert analysis.slow_steps is not None
    assert analysis.steps.later == 10_000
    assert analysis.steps.later_median_ns == 10 * MS
    return analysis.slow_steps


def test_a_watched_run_tells_percentiles_outliers_and_clocks(
    watched_slow_steps: tuple[CaptureBuilder, WatchedSteps],
) -> None:
    slow = found_in(watched_slow_steps)
    assert (slow.population, slow.steps) == ("watched", 10_000)
    assert [each.length_ns for each in slow.percentiles] == [10 * MS] * 3
    assert (slow.outliers, slow.outliers_longer_ns) == (10, 500 * MS)
    assert slow.causes[0].every == 1000
    assert [cause.every for cause in slow.causes[1:]] == [None] * (len(slow.causes) - 1)
    assert slow.causes[0].cause == "garbage collection"
    assert slow.causes[0].longer_ns == 480 * MS
    assert slow.watching_fraction == pytest.approx(0.002)
    assert [point.sm_clock_mhz for point in slow.time_line] == [1755] * 10 + [1410] * 10
    assert slow.time_line[0].slowed_by == ()
    assert slow.time_line[-1].slowed_by == ("software thermal slowdown",)
    assert slow.slowest[0].sm_clock_mhz == 1755
    # Nothing says what a step computes.
    assert slow.mfu is None


def test_steps_that_share_a_mark_have_no_period(
    watched_slow_steps: tuple[CaptureBuilder, WatchedSteps],
) -> None:
    build, run = watched_slow_steps
    shared = msgspec.structs.replace(run, steps_per_mark=8)
    found = analyze(build.build(watched_steps=shared)).slow_steps
    assert found is not None
    assert (found.steps, found.outliers) == (80_000, 80)
    assert {cause.every for cause in found.causes} == {None}


def test_a_watched_run_is_in_every_report(
    watched_slow_steps: tuple[CaptureBuilder, WatchedSteps],
) -> None:
    build, run = watched_slow_steps
    analysis = analyze(build.build(watched_steps=run))
    console = Console(file=StringIO(), width=300)
    render_summary(analysis, console)
    assert isinstance(console.file, StringIO)
    summary = console.file.getvalue()
    assert "P50 10.00 ms, P95 10.00 ms, P99 10.00 ms" in summary
    assert "10  0.1% of them took more than 10.50 ms" in summary
    assert "of the time: garbage collection 96.0% (every 1000 steps)" in summary
    page, markdown = render_html(analysis), render_markdown(analysis)
    assert '<svg class="run"' in page
    assert "garbage collection 48.0 ms" in page
    assert "garbage collection 48.0 ms" in markdown


def test_the_plot_of_a_run_has_all_of_it_inside(
    watched_slow_steps: tuple[CaptureBuilder, WatchedSteps],
) -> None:
    slow = found_in(watched_slow_steps)
    plot = make_run_plot(slow)
    assert plot.logarithmic
    assert len(plot.bars) == 20
    assert len(plot.outliers) == 10
    for mark in (*plot.outliers, *plot.ticks):
        assert 0 <= mark.x <= plot.width
        assert 0 <= mark.y <= plot.height
    # Longer ones stand higher.
    assert all(bar.high_y <= bar.low_y for bar in plot.bars)
    assert plot.clock is not None
    assert len(plot.clock.slowed) == 11
    alike = make_run_plot(msgspec.structs.replace(slow, longest_ns=10 * MS, slowest=()))
    assert not alike.logarithmic
    single = msgspec.structs.replace(slow, time_line=slow.time_line[:1])
    assert make_run_plot(single).clock is None


def test_timed_steps_without_a_watch_have_outliers_too(build: CaptureBuilder) -> None:
    for number in range(20):
        late = 30 * MS if number == 7 else 0
        start = number * 100 * MS
        build.step(
            "timed",
            start,
            start + 10 * MS + late,
            device_ns=10 * MS + late + number,
            device_start_ns=start,
            run_delay_ns=late // 2,
            garbage_collection_ns=late // 5,
        )
    slow = analyze(build.build()).slow_steps
    assert slow is not None
    assert (slow.population, slow.steps, slow.outliers) == ("timed", 20, 1)
    assert [each.fraction for each in slow.percentiles] == [0.5, 0.95]
    (first, *others) = slow.slowest
    assert first.index == 7
    assert {part.cause: part.longer_ns for part in first.differences} == {
        "garbage collection": 6 * MS,
        "waiting for a core": 15 * MS,
        "the host": first.longer_ns - 21 * MS,
    }
    assert all(step.differences == () for step in others)


def test_of_an_imported_trace_the_slowest_step_is_compared_with_the_median_one(
    build: CaptureBuilder,
) -> None:
    for number in range(5):
        start = number * 1000
        slow = number == 3
        build.step("profiled", start, start + (900 if slow else 500))
        build.mm(start + 10, start + 60)
        build.kernel(start + 20, start + 30, start + (430 if slow else 130), "gemm")
        build.kernel(start + 40, start + 440, start + 460, "small")
        if slow:
            build.range("checkpoint", start + 480, start + 880)
    analysis = analyze(build.build())
    found = analysis.slow_steps
    assert found is not None
    assert (found.population, found.steps, found.outliers) == ("profiled", 5, 1)
    (slowest,) = found.slowest
    assert (slowest.index, slowest.length_ns, slowest.longer_ns) == (3, 900, 400)
    by_cause = {part.cause: part for part in slowest.differences}
    assert {cause: part.longer_ns for cause, part in by_cause.items()} == {
        "longer device work": 300,
        "the host": 100,
    }
    assert by_cause["longer device work"].evidence == ("gemm: 400 ns in 1 calls, ordinarily 100 ns")
    assert by_cause["the host"].evidence == "checkpoint: 400 ns in 1 calls, ordinarily 0"


def test_one_step_is_no_distribution(build: CaptureBuilder) -> None:
    assert analyze(build.build()).slow_steps is None
    build.step("timed", 0, 10)
    assert analyze(build.build()).slow_steps is None
