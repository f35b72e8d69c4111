"""The history of benchmarks as one HTML file that needs no network: a plot for each series."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gpuprof._version import __version__
from gpuprof.reports import formatting
from gpuprof.reports.history.drawing import HistoryDrawing, draw_history
from gpuprof.reports.html.plotly_bundle import embedded_plotly
from gpuprof.reports.html.templating import (
    PageLink,
    embedded_json,
    make_environment,
    scripts,
    source,
)
from gpuprof.roofline.gate.history import ChangePoint, HistorySeries

# More plots make a page that opens slowly.
MOST_PLOTTED = 60
# Scales of an axis, the largest first.
_SCALES: Final = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "bytes/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")),
}


class PlotPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One gate, in the unit of its axis."""

    date: str
    commit: str
    value: float
    low: float
    high: float
    processes: int
    # The change from the old level to the one that begins here, in words; "" where none does.
    change: str


class PlotSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One plot."""

    title: str
    device: str
    unit: str
    points: tuple[PlotPoint, ...]


@dataclass(frozen=True)
class Drawn:
    """One plot, and what stands in its place without script."""

    plot: PlotSeries
    drawing: HistoryDrawing


class Plots(msgspec.Struct, frozen=True):
    """All plots of the page."""

    series: tuple[PlotSeries, ...]


def render_history(
    series: Sequence[HistorySeries],
    changes: Sequence[Sequence[ChangePoint]],
    *,
    remark: str = "",
    links: Sequence[PageLink] = (),
) -> str:
    """`series` with the change points of each as HTML; `remark` is a sentence for its head."""
    environment = make_environment()
    shown = [draw(one, found) for one, found in zip(series, changes, strict=True)][:MOST_PLOTTED]
    remarks = [remark] if remark else []
    if len(series) > len(shown):
        remarks.append(
            f"{len(series) - len(shown)} more series are not plotted; choose with --benchmark."
        )
    return environment.get_template("history.html").render(
        links=links,
        version=__version__,
        series=shown,
        remarks=remarks,
        data=embedded_json(Plots(tuple(one.plot for one in shown))),
        style=source(environment, "report.css"),
        own_style=source(environment, "history.css"),
        script=scripts(environment, "history.js"),
        plotly=embedded_plotly(),
    )


def draw(series: HistorySeries, changes: Sequence[ChangePoint]) -> Drawn:
    """One series scaled to a unit that its values read well in."""
    largest = max(point.high for point in series.points)
    scale, unit = next(
        ((scale, unit) for scale, unit in _SCALES.get(series.unit, ()) if largest >= scale),
        (1.0, series.unit),
    )
    said = {change.index: f"{100 * change.change:+.1f} %" for change in changes}
    plot = PlotSeries(
        title=formatting.printable(f"{series.benchmark} {series.metric}"),
        device=formatting.printable(series.device),
        unit=unit,
        points=tuple(
            PlotPoint(
                date=formatting.date(point.measured_ns).removesuffix(" UTC"),
                commit=formatting.printable((point.commit or "")[:10]),
                value=point.value / scale,
                low=point.low / scale,
                high=point.high / scale,
                processes=point.processes,
                change=said.get(index, ""),
            )
            for index, point in enumerate(series.points)
        ),
    )
    return Drawn(plot, draw_history(series.points, said, scale))
