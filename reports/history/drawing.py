"""A history as a drawing that needs no script: each gate's median with its least and its most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuprof.reports import formatting
from gpuprof.reports.html.scale import scale_of
from gpuprof.roofline.gate.history import Point


@dataclass(frozen=True)
class DrawnPoint:
    """One gate; places are in per cent of the drawing, from its left and its bottom."""

    x: float
    value: float
    low: float
    high: float
    # The change that begins here, in words; "" where none does.
    change: str


@dataclass(frozen=True)
class HistoryDrawing:
    """The points, the axis beside them as (place, words), and the first and the last date."""

    points: tuple[DrawnPoint, ...]
    ticks: tuple[tuple[float, str], ...]
    first: str
    last: str


def draw_history(
    points: Sequence[Point], changes: Mapping[int, str], unit_size: float
) -> HistoryDrawing:
    """`points` in a unit of `unit_size`; `changes` by the index of the point that begins one."""
    time = scale_of(*(point.measured_ns for point in points))
    height = scale_of(*(value / unit_size for point in points for value in (point.low, point.high)))
    return HistoryDrawing(
        points=tuple(
            DrawnPoint(
                x=time.at(point.measured_ns),
                value=height.at(point.value / unit_size),
                low=height.at(point.low / unit_size),
                high=height.at(point.high / unit_size),
                change=changes.get(index, ""),
            )
            for index, point in enumerate(points)
        ),
        ticks=tuple((height.at(value), f"{value:g}") for value in height.ticks()),
        first=_day(points[0]),
        last=_day(points[-1]),
    )


def _day(point: Point) -> str:
    return formatting.date(point.measured_ns).partition(" ")[0]
