"""The roofline's geometry: points, ceiling lines and axis ranges, as the page's script draws them.

x is arithmetic intensity in FLOP per byte, y is FLOP/s; of what crosses a link x is bytes of a call
and y bytes/s. Both axes are logarithmic. Names stay out of this data: a point carries the id of its
table row, which is where the script reads its figures.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec

from gpuprof.reports import formatting
from gpuprof.reports.blocks import PlotLevel
from gpuprof.reports.html.axis_ranges import (
    AxisPlace,
    Range,
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
from gpuprof.reports.html.link_roofs import link_ceilings, link_roofs
from gpuprof.reports.sections.roofline import coordinates
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.classes import ClassName, classes
from gpuprof.roofline.machine.ceilings import Ceiling

_SMALLEST_DIAMETER = 9.0
_LARGEST_DIAMETER = 54.0
_BARS = "Bars reach from the slowest to the fastest call."


class ChartPoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One point. `row` is the id of its table row; `size` is a diameter in pixels."""

    row: str
    x: float
    y: float
    size: float
    kind: ClassName
    # The rates of its slowest and its fastest call; None where it was called once.
    slowest: float | None = None
    fastest: float | None = None
    # Where the models put what was counted, if elsewhere.
    modelled: tuple[float, float] | None = None


class ChartLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The points of one level, how many had to be left out, and which lie outside of the axes."""

    name: str
    label: str
    points: tuple[ChartPoint, ...]
    note: str
    # "2 smaller kernels (<0.1% of device time) lie outside of the axes"; "" where none does.
    outside: str
    # What its bars are, which only the script draws; "" without any.
    bars: str


class Chart(msgspec.Struct, frozen=True, kw_only=True):
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
    # What crosses links: bytes of a call and bytes/s. None where nothing does.
    links: "Chart | None" = None

    @property
    def all_levels(self) -> tuple[ChartLevel, ...]:
        """Those against links too."""
        return (*self.levels, *(self.links.levels if self.links else ()))


def make_chart(analysis: Analysis, levels: Sequence[PlotLevel]) -> Chart | None:
    """The chart of `levels`. None without any point on the axes of work."""
    work = [level for level in levels if level.axes == "work"]
    if not any(map(_places, work)):
        return None
    used = used_precisions(point for level in work for _, point in level.points)
    state = analysis.device_state
    clock = None if state is None else state.sm_clock_mhz_median
    ceilings = (*analysis.ceilings, *at_seen_clock(analysis.ceilings, used, clock))

    def lines(x_range: Range) -> tuple[CeilingLine, ...]:
        return ceiling_lines(
            analysis.ceilings, x_range, used, roof_source=analysis.roof_source, clock_mhz=clock
        )

    # The first one is shown first, so it should have something to show.
    work.sort(key=lambda level: not _places(level))
    chart = _chart(work, ceilings, lines)
    links = [level for level in levels if level.axes == "link"]
    if not any(map(_places, links)):
        return chart
    crossing = [point.transfer for level in links for _, point in level.points if point.transfer]
    roofs = link_ceilings(analysis.ceilings, crossing)

    def link_lines(x_range: Range) -> tuple[CeilingLine, ...]:
        return link_roofs(analysis.ceilings, x_range, crossing, analysis.roof_source)

    return msgspec.structs.replace(chart, links=_chart(links, roofs, link_lines))


def _chart(
    levels: Sequence[PlotLevel],
    ceilings: Sequence[Ceiling],
    lines: Callable[[Range], tuple[CeilingLine, ...]],
) -> Chart:
    """The chart of levels that share their axes."""
    places = [_places(level) for level in levels]
    ranges = ranges_where_the_time_is(places, ceilings)
    whole = whole_ranges(places, ceilings)
    return Chart(
        levels=tuple(
            _level(level, found, ranges) for level, found in zip(levels, places, strict=True)
        ),
        ceilings=lines(whole.x),
        x_range=ranges.x,
        y_range=ranges.y,
        whole_x_range=whole.x,
        whole_y_range=whole.y,
        marks=_marks(),
    )


def _marks() -> dict[ClassName, str]:
    return {name: row.mark for name, row in classes().items() if row.mark}


def _places(level: PlotLevel) -> list[AxisPlace]:
    """Where the points of `level` lie that can be drawn, in their order, and where models put them.

    What the models say of a point takes no time of its own.
    """
    drawn = [
        place(*found, point.device_fraction)
        for _, point in level.points
        if (found := coordinates(point, level))
    ]
    return [*drawn, *(place(*found, 0.0) for found in level.modelled.values())]


def _level(level: PlotLevel, places: Sequence[AxisPlace], ranges: Ranges) -> ChartLevel:
    points = tuple(
        _point(row, point, found, level)
        for row, point in level.points
        if (found := coordinates(point, level))
    )
    outside = [place for place in places[: len(points)] if not place.is_in(ranges)]
    note = " ".join(part for part in (level.note, _left_out_note(level)) if part)
    return ChartLevel(
        name=level.name,
        label=level.label,
        points=points,
        note=note,
        outside=_outside_note(outside),
        bars=_BARS if any(each.slowest is not None for each in points) else "",
    )


def _outside_note(outside: Sequence[AxisPlace]) -> str:
    """How many points the axes leave out as they begin, and their share of the time, or ""."""
    if not outside:
        return ""
    number = formatting.counted(len(outside), "small point")
    share = formatting.percent(sum(place.share for place in outside))
    verb = "lies" if len(outside) == 1 else "lie"
    return f"{number} ({share} of device time) {verb} outside of the axes."


def _point(
    row: str, point: RooflinePoint, found: tuple[float, float], level: PlotLevel
) -> ChartPoint:
    # The smallest diameter, and beyond it the root of the share, so that areas are comparable.
    span = _LARGEST_DIAMETER - _SMALLEST_DIAMETER
    size = _SMALLEST_DIAMETER + span * math.sqrt(max(0.0, min(1.0, point.device_fraction)))
    slowest, fastest = _rates_of_calls(point, found[1])
    return ChartPoint(
        row=row,
        x=found[0],
        y=found[1],
        size=round(size, 2),
        kind=point.bottleneck.kind,
        slowest=slowest,
        fastest=fastest,
        modelled=level.modelled.get(row),
    )


def _rates_of_calls(point: RooflinePoint, rate: float) -> tuple[float | None, float | None]:
    """The rates of the slowest and the fastest call, which all do the same work.

    What crosses a link has none: what a call waits for other ranks is in its time and not in
    the rate.
    """
    spread = point.spread
    if spread is None or spread.shortest_ns <= 0 or point.transfer is not None:
        return None, None
    mean_ns = point.device_ns / spread.calls
    return rate * mean_ns / spread.longest_ns, rate * mean_ns / spread.shortest_ns


def _left_out_note(level: PlotLevel) -> str:
    """How many points have no place in the plot, and why, or ""."""
    absent = [point for _, point in level.points if coordinates(point, level) is None]
    number, total = len(absent) + level.others, len(level.points) + level.others
    if not number:
        return ""
    share = sum(point.device_fraction for point in absent) + level.others_fraction
    reasons = list(_reasons(absent, level))
    if level.others:
        reasons.append(f"{level.others} smaller than those with a row")
    return (
        f"Not in this plot: {number} of {total} {level.label.lower()} "
        f"({formatting.percent(share)} of device time): {', '.join(reasons)}."
    )


def _reasons(absent: Sequence[RooflinePoint], level: PlotLevel) -> Iterator[str]:
    """Why points have no place, with the number of each."""
    if level.axes == "link":
        if absent:
            yield f"{len(absent)} of unknown size or rate"
        return
    idle = sum(point.total_flops == 0 for point in absent)
    unmoved = sum(bool(point.total_flops) and point.total_bytes == 0 for point in absent)
    if idle:
        yield f"{idle} without arithmetic (copies, fills)"
    if unmoved:
        yield f"{unmoved} that move no bytes"
    if len(absent) > idle + unmoved:
        yield f"{len(absent) - idle - unmoved} without a FLOP or byte model"
