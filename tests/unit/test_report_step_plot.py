"""The plot of the step times."""

import msgspec

from gpuprof.reports.html.step_plot import make_step_plot
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.step_figures import StepTimes


def _steps(*samples: int) -> StepTimes:
    ordered = sorted(samples)
    return StepTimes(
        found_by="",
        warmup=0,
        timed=len(samples),
        profiled=0,
        clock="host clock",
        median_ns=ordered[len(ordered) // 2],
        samples_ns=samples,
    )


def test_later_steps_stand_lower_and_longer_ones_further_right() -> None:
    plot = make_step_plot(_steps(10, 30, 20))
    assert plot is not None
    assert [dot.y for dot in plot.dots] == sorted(dot.y for dot in plot.dots)
    first, second, third = (dot.x for dot in plot.dots)
    assert first < third < second
    assert plot.median_x == third


def test_all_dots_stay_inside(training_analysis: Analysis) -> None:
    plot = make_step_plot(training_analysis.steps)
    assert plot is not None
    assert len(plot.dots) == 10
    assert all(0 < dot.x < plot.width and 0 < dot.y < plot.height for dot in plot.dots)


def test_equal_times_stand_in_the_middle() -> None:
    plot = make_step_plot(_steps(5, 5, 5))
    assert plot is not None
    assert {dot.x for dot in plot.dots} == {plot.width / 2}


def test_one_step_has_no_distribution() -> None:
    assert make_step_plot(_steps(5)) is None
    assert make_step_plot(msgspec.structs.replace(_steps(5, 6), median_ns=None)) is None
