"""The roofline's geometry: points, ceiling lines and axis ranges, as the page's script draws them.

x is arithmetic intensity in FLOP per byte, y is FLOP/s; both axes are logarithmic. Names stay out
of this data: a point carries the id of its table row, which is where the script reads its figures.
"""

import math
from collections.abc import Iterable, Sequence
from typing import get_args

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
from gpuprof.reports.sections.roofline import can_be_drawn
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.classes import ClassName, classes
from gpuprof.roofline.machine.ceilings import Ceiling, Source, at_clock

_SMALLEST_DIAMETER = 9.0
_LARGEST_DIAMETER = 54.0
# Ceilings of one source within this share of each other share a line and a label.
_SAME_RATE = 0.002


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


class CeilingLine(msgspec.Struct, frozen=True, kw_only=True):
    """A straight line in the log-log plane from (x0, y0) to (x1, y1).

    `used`: the program did work that it bounds. `is_roof`: the percentages are taken against its
    source.
    """

    kind: str
    # What it is and its rate, as words; the name is "" where another line already has it.
    name: str
    rate: str
    source: Source
    used: bool
    is_roof: bool
    # The SM clock that NVML saw, for a datasheet's peak drawn a second time at that clock.
    clock_mhz: int | None = None
    x0: float
    y0: float
    x1: float
    y1: float


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
    used = _used_precisions(point for level in levels for _, point in level.points)
    at_seen_clock = _at_seen_clock(analysis, used)
    ceilings = (*analysis.ceilings, *at_seen_clock)
    ranges = ranges_where_the_time_is(places, ceilings)
    whole = whole_ranges(places, ceilings)
    lines = tuple(
        line
        for source in get_args(Source)
        for line in _lines(
            [c for c in analysis.ceilings if c.source == source],
            whole.x,
            used,
            is_roof=source == analysis.roof_source,
        )
    )
    lines += _clock_lines(at_seen_clock, lines)
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


def _used_precisions(points: Iterable[RooflinePoint]) -> frozenset[tuple[str, str]]:
    """(FLOP kind, precision) of all work counted."""
    return frozenset(
        (part.kind, part.precision) for point in points for part in point.flops or () if part.count
    )


def _lines(
    ceilings: Sequence[Ceiling],
    x_range: tuple[float, float],
    used: frozenset[tuple[str, str]],
    *,
    is_roof: bool,
) -> list[CeilingLine]:
    """The lines of one source: memory up to the highest compute roof, compute from its ridge on."""
    compute = sorted((c for c in ceilings if c.kind == "compute"), key=_order)
    memory = sorted((c for c in ceilings if c.kind == "memory"), key=_order)
    left, right = 10 ** x_range[0], 10 ** x_range[1]
    heights = [c.rate for c in compute if _bounds(c, used)], [c.rate for c in compute]
    lines = []
    for ceiling in memory:
        start = left
        # Up to the highest roof in use; the rest of the line belongs to the roofs that are not.
        for rates, name in zip(heights, (ceiling.level or "memory", ""), strict=True):
            end = min(max(rates) / ceiling.rate, right) if rates else right
            if end <= start:
                continue
            lines.append(
                CeilingLine(
                    kind="memory",
                    name=name,
                    rate=formatting.byte_rate(ceiling.rate),
                    source=ceiling.source,
                    used=bool(name),
                    is_roof=is_roof,
                    x0=start,
                    y0=start * ceiling.rate,
                    x1=end,
                    y1=end * ceiling.rate,
                )
            )
            start = end
    # With several memory levels the fastest one has the leftmost ridge.
    fastest = max((c.rate for c in memory), default=None)
    for group in (
        *_equal_rates([c for c in compute if _bounds(c, used)]),
        *_equal_rates([c for c in compute if not _bounds(c, used)]),
    ):
        rate = group[0].rate
        lines.append(
            CeilingLine(
                kind="compute",
                name=_group_name(group),
                rate=formatting.flops_rate(rate),
                source=group[0].source,
                used=_bounds(group[0], used),
                is_roof=is_roof,
                x0=left if fastest is None else min(max(rate / fastest, left), right),
                y0=rate,
                x1=right,
                y1=rate,
            )
        )
    return lines


def _at_seen_clock(analysis: Analysis, used: frozenset[tuple[str, str]]) -> list[Ceiling]:
    """The datasheet's peaks in use, at the median SM clock of the timed steps."""
    state = analysis.device_state
    clock = None if state is None else state.sm_clock_mhz_median
    scaled = (at_clock(each, clock) for each in analysis.ceilings if _bounds(each, used))
    return [ceiling for ceiling in scaled if ceiling is not None]


def _clock_lines(
    ceilings: Sequence[Ceiling], lines: Sequence[CeilingLine]
) -> tuple[CeilingLine, ...]:
    """One line for each rate of `ceilings`, from the memory roof on, as the nominal ones."""
    promised = [line for line in lines if line.source == "datasheet"]
    slopes = [line.y0 / line.x0 for line in promised if line.kind == "memory"]
    return tuple(
        CeilingLine(
            kind="compute",
            name=f"{_group_name(group)} at {group[0].clock_mhz} MHz",
            rate=formatting.flops_rate(group[0].rate),
            source="datasheet",
            used=True,
            is_roof=False,
            clock_mhz=group[0].clock_mhz,
            x0=group[0].rate / max(slopes) if slopes else min(line.x0 for line in promised),
            y0=group[0].rate,
            x1=max(line.x1 for line in promised),
            y1=group[0].rate,
        )
        for group in _equal_rates(sorted(ceilings, key=_order))
    )


def _bounds(ceiling: Ceiling, used: frozenset[tuple[str, str]]) -> bool:
    """True where the program did work that this ceiling bounds.

    Matmuls run on tensor units where the device has them for the precision, else on vector units.
    """
    if ceiling.precision is None:
        return False
    if ceiling.unit == "tensor":
        return ("matmul", ceiling.precision) in used
    return ("vector", ceiling.precision) in used or ("matmul", ceiling.precision) in used


def _order(ceiling: Ceiling) -> tuple[float, str, str]:
    return (-ceiling.rate, ceiling.unit or "", ceiling.precision or ceiling.level or "")


def _equal_rates(ceilings: Sequence[Ceiling]) -> list[list[Ceiling]]:
    """Neighbours of `ceilings`, sorted by rate, whose lines would lie on each other."""
    groups: list[list[Ceiling]] = []
    for ceiling in ceilings:
        if groups and groups[-1][0].rate - ceiling.rate <= _SAME_RATE * ceiling.rate:
            groups[-1].append(ceiling)
        else:
            groups.append([ceiling])
    return groups


def _group_name(group: Sequence[Ceiling]) -> str:
    """ "bf16, fp16 tensor"; units apart: "fp64 tensor, fp32 vector"."""
    units = dict.fromkeys(ceiling.unit for ceiling in group)
    return ", ".join(
        f"{', '.join(c.precision or '' for c in group if c.unit == unit)} {unit}" for unit in units
    )
