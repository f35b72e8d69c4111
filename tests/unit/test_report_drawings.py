"""The drawings that stand in a page where no script runs."""

import itertools
import math

import pytest

from gpuprof.reports.blocks import PlotLevel
from gpuprof.reports.gate.pairs_drawing import draw_pairs
from gpuprof.reports.gate.plot import Plot, PlotRow
from gpuprof.reports.history.drawing import draw_history
from gpuprof.reports.html.chart import Chart, make_chart
from gpuprof.reports.html.picture import Picture, make_picture
from gpuprof.reports.html.scale import Scale, scale_of
from gpuprof.reports.point_rows import row_points
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.gate.history import Point

SIZES = ((900, 470), (380, 380))


def _chart(analysis: Analysis) -> Chart:
    level = PlotLevel("kernel", "Kernels", row_points("kernel", analysis.kernels))
    chart = make_chart(analysis, [level])
    assert chart is not None
    return chart


def _intensity(picture: Picture, x: float) -> float:
    """FLOP per byte at `x`, read off the outermost ticks of the drawing."""
    first, last = picture.area.x_ticks[0], picture.area.x_ticks[-1]
    low, high = math.log10(float(first.text)), math.log10(float(last.text))
    return float(10 ** (low + (x - first.at) / (last.at - first.at) * (high - low)))


@pytest.mark.parametrize("size", SIZES)
def test_points_stand_at_their_intensity_by_the_axis(
    training_analysis: Analysis, size: tuple[int, int]
) -> None:
    chart = _chart(training_analysis)
    picture = make_picture(chart, *size)
    known = {point.row: point for point in chart.levels[0].points}
    assert len(picture.points) > 10
    for point in picture.points:
        assert _intensity(picture, point.x) == pytest.approx(known[point.row].x, rel=0.05)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fixture", ["training_analysis", "cpu_analysis"])
def test_all_that_is_drawn_is_inside(
    fixture: str, size: tuple[int, int], request: pytest.FixtureRequest
) -> None:
    picture = make_picture(_chart(request.getfixturevalue(fixture)), *size)
    lines = [(x, y) for one in picture.lines for x, y in ((one.x0, one.y0), (one.x1, one.y1))]
    for x, y in (*lines, *((point.x, point.y) for point in picture.points)):
        assert picture.area.left - 0.1 <= x <= picture.area.right + 0.1
        assert picture.area.top - 0.1 <= y <= picture.area.bottom + 0.1


def test_a_narrow_drawing_has_fewer_labels_and_always_the_roofs(
    training_analysis: Analysis,
) -> None:
    chart = _chart(training_analysis)
    wide, narrow = (
        [one.label for one in make_picture(chart, *size).lines if one.label] for size in SIZES
    )
    assert set(narrow) < set(wide)
    assert {"bf16 tensor 989 TFLOP/s", "DRAM 3.35 TB/s"} <= set(narrow)


def test_labels_of_one_corner_do_not_lie_on_each_other(training_analysis: Analysis) -> None:
    for size in SIZES:
        lines = make_picture(_chart(training_analysis), *size).lines
        heights = sorted(one.label_y for one in lines if one.label and not one.angle)
        assert all(b - a > 12 for a, b in itertools.pairwise(heights))


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (-1.0, 8.0, (0, 2, 4, 6, 8)),
        (0.0, 1e-3, (0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3)),
        (990.0, 1010.0, (990, 995, 1000, 1005, 1010)),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: tuple[float, ...]) -> None:
    assert Scale(low, high).ticks() == pytest.approx(ticks)


@pytest.mark.parametrize("values", [(0.0,), (5.0, 5.0), (-3.0, 1e9)])
def test_an_axis_has_room_around_its_values(values: tuple[float, ...]) -> None:
    scale = scale_of(*values)
    assert all(0 < scale.at(value) < 100 for value in values)


def test_strips_share_an_axis_with_no_change_on_it() -> None:
    rows = (
        PlotRow(
            label="a", verdict="REGRESSED", pairs=(5.0, 7.0), mean=6.0, interval=(5.5, 6.5), limit=2
        ),
        PlotRow(label="b", verdict="PASS", pairs=(0.0,), mean=0.0, interval=None, limit=None),
    )
    drawing = draw_pairs(Plot(rows, ""))
    first, second = drawing.strips
    assert second.mean == drawing.zero
    assert first.limit is not None
    # 2 is two sixths of the way from 0 to 6.
    assert (first.limit - drawing.zero) / (first.mean - drawing.zero) == pytest.approx(
        1 / 3, abs=0.01
    )
    assert first.interval is not None
    assert first.interval[0] + first.interval[1] / 2 == pytest.approx(first.mean, abs=0.1)


def test_a_history_of_one_gate_is_drawn() -> None:
    point = Point(measured_ns=10**18, commit=None, value=4e6, low=4e6, high=4e6, processes=1)
    drawing = draw_history([point], {}, 1e6)
    assert [(drawn.x, drawn.value) for drawn in drawing.points] == [(50, 50)]
    assert drawing.first == drawing.last == "2001-09-09"


def test_a_history_shows_where_a_change_begins() -> None:
    points = [
        Point(
            measured_ns=day * 86400 * 10**9,
            commit=None,
            value=(3e6, 4e6)[day > 2],
            low=2e6,
            high=5e6,
            processes=5,
        )
        for day in range(5)
    ]
    drawing = draw_history(points, {3: "+33.3 %"}, 1e6)
    assert [point.change for point in drawing.points] == ["", "", "", "+33.3 %", ""]
    assert all(point.low < point.value < point.high for point in drawing.points)
    assert [text for _, text in drawing.ticks] == ["2", "3", "4", "5"]
