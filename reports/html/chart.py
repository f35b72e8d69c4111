"""The roofline's geometry: points, ceiling lines and axis ranges, as the page's script draws them.

x is arithmetic intensity in FLOP per byte, y is FLOP/s; both axes are logarithmic. Names stay out
of this data: a point carries the id of its table row, which is where the script reads its figures.
"""

import math
from collections.abc import Sequence

import msgspec

from gpuprof.reports import formatting
from gpuprof.reports.blocks import PlotLevel
from gpuprof.reports.html.axis_ranges import (
    AxisPlace,
    Ranges,
    place,
    ranges_where_the_time_is,
    whole_ranges,
)
from gpuprof.reports.html.ceiling_lines import (
    CeilingLine,
    at_seen_clock,
    ceiling_lines,
    used_precisions,
)
from gpuprof.reports.sections.roofline import can_be_drawn
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.classes import ClassName, classes

_SMALLEST_DIAMETER = 9.0
_LARGEST_DIAMETER = 54.0


class ChartPoint(msgspec.Struct, frozen=True):
    """One point. `row` is the id of its table row; `size` is a diameter in pixels."""

    row: str
    x: float
    y: float
    size: float
    kind: ClassName


class ChartLevel(msgspec.Struct, frozen=True):
    """The points of one level, how many had to be left out, and which lie outside of the axes."""

    name: str
    label: str
    points: tuple[ChartPoint, ...]
    note: str
    # "2 smaller kernels (<0.1% of device time) lie outside of the axes"; "" where none does.
    outside: str


class Chart(msgspec.Struct, frozen=True):
    """All that the page's script needs. Ranges are of the exponents, base 10.

    The axes begin where the time is; the whole ranges hold every point.
    """

    levels: tuple[ChartLevel, ...]
    ceilings: tuple[CeilingLine, ...]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    whole_x_range: tuple[float, float]
    whole_y_range: tuple[float, float]
    # Each class with its sign, in the order of the legend.
    marks: dict[ClassName, str]


def make_chart(analysis: Analysis, levels: Sequence[PlotLevel]) -> Chart | None:
    """The chart of `levels`. None without any point."""
    places = [_places(level) for level in levels]
    if not any(places):
        return None
    used = used_precisions(point for level in levels for _, point in level.points)
    state = analysis.device_state
    clock = None if state is None else state.sm_clock_mhz_median
    ceilings = (*analysis.ceilings, *at_seen_clock(analysis.ceilings, used, clock))
    ranges = ranges_where_the_time_is(places, ceilings)
    whole = whole_ranges(places, ceilings)
    lines = ceiling_lines(
        analysis.ceilings, whole.x, used, roof_source=analysis.roof_source, clock_mhz=clock
    )
    drawn = tuple(_level(level, found, ranges) for level, found in zip(levels, places, strict=True))
    return Chart(drawn, lines, ranges.x, ranges.y, whole.x, whole.y, _marks())


def _marks() -> dict[ClassName, str]:
    return {name: row.mark for name, row in classes().items() if row.mark}


def _places(level: PlotLevel) -> list[AxisPlace]:
    """Where the points of `level` lie that can be drawn, in their order."""
    return [
        place(point.arithmetic_intensity, point.flops_per_s, point.device_fraction)
        for _, point in level.points
        if can_be_drawn(point) and point.arithmetic_intensity and point.flops_per_s
    ]


def _level(level: PlotLevel, places: Sequence[AxisPlace], ranges: Ranges) -> ChartLevel:
    points = tuple(_point(row, point) for row, point in level.points if can_be_drawn(point))
    note = _left_out_note(level)
    outside = [place for place in places if not place.is_in(ranges)]
    return ChartLevel(level.name, level.label, points, note, _outside_note(outside))


def _outside_note(outside: Sequence[AxisPlace]) -> str:
    """How many points the axes leave out as they begin, and their share of the time, or ""."""
    if not outside:
        return ""
    number = formatting.counted(len(outside), "small point")
    share = formatting.percent(sum(place.share for place in outside))
    verb = "lies" if len(outside) == 1 else "lie"
    return f"{number} ({share} of device time) {verb} outside of the axes."


def _point(row: str, point: RooflinePoint) -> ChartPoint:
    assert point.arithmetic_intensity is not None
    assert point.flops_per_s is not None
    # The smallest diameter, and beyond it the root of the share, so that areas are comparable.
    span = _LARGEST_DIAMETER - _SMALLEST_DIAMETER
    size = _SMALLEST_DIAMETER + span * math.sqrt(max(0.0, min(1.0, point.device_fraction)))
    return ChartPoint(
        row=row,
        x=point.arithmetic_intensity,
        y=point.flops_per_s,
        size=round(size, 2),
        kind=point.bottleneck.kind,
    )


def _left_out_note(level: PlotLevel) -> str:
    """How many points have no place in the plot, and why, or ""."""
    absent = [point for _, point in level.points if not can_be_drawn(point)]
    number, total = len(absent) + level.others, len(level.points) + level.others
    if not number:
        return ""
    share = sum(point.device_fraction for point in absent) + level.others_fraction
    without_flops = sum(point.total_flops == 0 for point in absent)
    reasons = []
    if without_flops:
        reasons.append(f"{without_flops} without arithmetic (copies, fills)")
    if len(absent) > without_flops:
        reasons.append(f"{len(absent) - without_flops} without a FLOP or byte model")
    if level.others:
        reasons.append(f"{level.others} smaller than those with a row")
    return (
        f"Not in this plot: {number} of {total} {level.label.lower()} "
        f"({formatting.percent(share)} of device time): {', '.join(reasons)}."
    )
