"""The roofline's geometry."""

import math

import msgspec
import pytest

from gpuprof.reports.blocks import PlotLevel
from gpuprof.reports.html.chart import Chart, make_chart
from gpuprof.reports.point_rows import row_points
from gpuprof.roofline.analysis import Analysis, DeviceState


def _chart(analysis: Analysis) -> Chart:
    level = PlotLevel("kernel", "Kernels", row_points("kernel", analysis.kernels))
    chart = make_chart(analysis, [level])
    assert chart is not None
    return chart


def test_every_point_and_every_line_lies_in_the_whole_ranges(training_analysis: Analysis) -> None:
    chart = _chart(training_analysis)
    for x, y in [
        *((point.x, point.y) for point in chart.levels[0].points),
        *((line.x1, line.y1) for line in chart.ceilings),
    ]:
        assert chart.whole_x_range[0] <= math.log10(x) <= chart.whole_x_range[1] + 1e-3
        assert chart.whole_y_range[0] <= math.log10(y) <= chart.whole_y_range[1]


def _shares_outside(chart: Chart, analysis: Analysis) -> list[float]:
    rows = dict(row_points("kernel", analysis.kernels))
    return [
        rows[point.row].device_fraction
        for point in chart.levels[0].points
        if not chart.x_range[0] <= math.log10(point.x) <= chart.x_range[1]
        or not chart.y_range[0] <= math.log10(point.y) <= chart.y_range[1]
    ]


def test_a_tiny_kernel_far_below_does_not_stretch_the_axes(training_analysis: Analysis) -> None:
    chart = _chart(training_analysis)
    tiny = msgspec.structs.replace(
        training_analysis.kernels[0], device_fraction=1e-6, flops_per_s=12.0
    )
    analysis = msgspec.structs.replace(
        training_analysis, kernels=(*training_analysis.kernels, tiny)
    )
    stretched = _chart(analysis)
    assert (stretched.x_range, stretched.y_range) == (chart.x_range, chart.y_range)
    assert stretched.whole_y_range[0] < math.log10(12)
    before = _shares_outside(chart, training_analysis)
    after = _shares_outside(stretched, analysis)
    assert len(after) == len(before) + 1
    assert sum(after) < 0.01
    assert stretched.levels[0].outside.startswith(f"{len(after)} small point")


def test_what_takes_the_time_is_in_the_axes_wherever_it_lies(training_analysis: Analysis) -> None:
    slow = msgspec.structs.replace(training_analysis.kernels[0], flops_per_s=12.0)
    chart = _chart(
        msgspec.structs.replace(training_analysis, kernels=(slow, *training_analysis.kernels[1:]))
    )
    assert chart.y_range[0] < math.log10(12)
    assert chart.levels[0].outside == ""


def test_one_point_alone_has_axes_around_it(cpu_analysis: Analysis) -> None:
    point = cpu_analysis.kernels[0]
    chart = _chart(msgspec.structs.replace(cpu_analysis, kernels=(point,)))
    assert point.arithmetic_intensity is not None
    low, high = chart.x_range
    assert low < math.log10(point.arithmetic_intensity) < high
    assert chart.x_range == chart.whole_x_range


def test_compute_roofs_begin_at_their_ridge(training_analysis: Analysis) -> None:
    lines = [line for line in _chart(training_analysis).ceilings if line.source == "datasheet"]
    bf16 = next(line for line in lines if line.name == "bf16 tensor")
    assert bf16.y0 == bf16.y1 == 989.4e12
    assert bf16.x0 == pytest.approx(989.4e12 / 3.35e12)


def test_the_memory_roof_ends_at_the_highest_compute_roof_in_use(
    training_analysis: Analysis,
) -> None:
    lines = [
        line
        for line in _chart(training_analysis).ceilings
        if line.source == "datasheet" and line.kind == "memory"
    ]
    assert [(line.name, line.used) for line in lines] == [("DRAM", True), ("", False)]
    assert lines[0].y1 == pytest.approx(989.4e12)
    assert lines[1].y1 == pytest.approx(1978.9e12)
    assert lines[0].y0 / lines[0].x0 == pytest.approx(3.35e12)


def test_only_precisions_of_the_program_count_as_used(training_analysis: Analysis) -> None:
    names = {
        line.name
        for line in _chart(training_analysis).ceilings
        if line.used and line.kind == "compute" and line.clock_mhz is None
    }
    assert names == {"bf16 tensor", "fp32 vector"}


def test_only_the_source_of_the_percentages_is_the_roof(training_analysis: Analysis) -> None:
    chart = _chart(training_analysis)
    assert {line.source for line in chart.ceilings if line.is_roof} == {"datasheet"}
    assert {line.source for line in chart.ceilings} == {"datasheet", "measured"}


def test_the_roof_at_the_clock_that_nvml_saw_stands_beside_the_nominal_one(
    training_analysis: Analysis,
) -> None:
    state = DeviceState(samples=9, sm_clock_mhz_median=1647)
    analysis = msgspec.structs.replace(training_analysis, device_state=state)
    lines = {line.name: line for line in _chart(analysis).ceilings if line.source == "datasheet"}
    nominal, seen = lines["bf16 tensor"], lines["bf16 tensor at 1647 MHz"]
    assert seen.y0 == seen.y1 == pytest.approx(989.4e12 * 0.9)
    assert seen.x0 == pytest.approx(seen.y0 / 3.35e12)
    assert (seen.x1, seen.used, seen.is_roof) == (nominal.x1, True, False)
    assert not any(name.startswith("fp8 tensor at") for name in lines)
    unknown = msgspec.structs.replace(training_analysis, device_state=None)
    assert not any(line.clock_mhz for line in _chart(unknown).ceilings)


def test_equal_unused_peaks_share_a_line(training_analysis: Analysis) -> None:
    ceilings = tuple(
        msgspec.structs.replace(c, rate=494.7e12) if c.precision == "fp16" else c
        for c in training_analysis.ceilings
    )
    analysis = msgspec.structs.replace(training_analysis, ceilings=ceilings)
    assert "fp16, tf32 tensor" in {line.name for line in _chart(analysis).ceilings}


def test_points_without_intensity_are_left_out_and_counted(training_analysis: Analysis) -> None:
    level = _chart(training_analysis).levels[0]
    absent = len(training_analysis.kernels) - len(level.points)
    assert absent > 0
    assert f" {absent} of {len(training_analysis.kernels)} kernels " in level.note
    assert "without arithmetic" in level.note
    assert "without a FLOP or byte model" in level.note


def test_area_grows_with_device_time(training_analysis: Analysis) -> None:
    points = _chart(training_analysis).levels[0].points
    sizes = [point.size for point in points]
    assert sizes == sorted(sizes, reverse=True)
    assert all(9 <= size <= 54 for size in sizes)


def test_without_ceilings_there_are_points_and_no_lines(cpu_analysis: Analysis) -> None:
    chart = _chart(cpu_analysis)
    assert chart.ceilings == ()
    assert chart.levels[0].points


def test_without_points_there_is_no_chart(bare_analysis: Analysis) -> None:
    assert make_chart(bare_analysis, [PlotLevel("kernel", "Kernels", ())]) is None


def test_values_that_are_not_finite_have_no_place(training_analysis: Analysis) -> None:
    broken = msgspec.structs.replace(training_analysis.kernels[0], flops_per_s=math.inf)
    assert (
        make_chart(training_analysis, [PlotLevel("kernel", "Kernels", (("kernel-0", broken),))])
        is None
    )
