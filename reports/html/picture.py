"""The roofline as a drawing that needs no script: what stands where the script's plot will.

A page without script is one in a mail, in a CI system's sandbox, or on paper. The drawing has the
first level's points inside the axes as they begin; a point links to its row.
"""

from dataclasses import dataclass

from gpuprof.reports.html.chart import Chart
from gpuprof.reports.html.plot_area import PictureLine, PlotArea, draw_ceilings, plot_area
from gpuprof.roofline.classes import ClassName

# The marks' paths are drawn in a square of this side.
MARK_SIDE = 11.0


@dataclass(frozen=True)
class PicturePoint:
    """A point: its row, its class, its centre and how much its mark is enlarged."""

    row: str
    kind: ClassName
    x: float
    y: float
    scale: float


@dataclass(frozen=True)
class Picture:
    """Where everything goes, in the units of the SVG's view box."""

    area: PlotArea
    lines: tuple[PictureLine, ...]
    points: tuple[PicturePoint, ...]


def make_picture(chart: Chart, width: int, height: int) -> Picture:
    """The drawing of the chart's first level in `width` by `height` pixels."""
    area = plot_area(chart.x_range, chart.y_range, width, height)
    return Picture(
        area=area,
        lines=draw_ceilings([line for line in chart.ceilings if line.used], area),
        points=tuple(
            PicturePoint(
                point.row,
                point.kind,
                round(area.x.at(point.x), 1),
                round(area.y.at(point.y), 1),
                round(point.size / MARK_SIDE, 2),
            )
            for point in chart.levels[0].points
            if area.holds(point.x, point.y)
        ),
    )
