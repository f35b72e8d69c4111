"""Times of functions over sizes as one HTML file that needs no network, and as one drawing."""

from collections.abc import Sequence
from itertools import groupby

from gpuprof._version import __version__
from gpuprof.reports import formatting
from gpuprof.reports.bench.sizes_plot import draw_sizes
from gpuprof.reports.bench.sizes_table import cells, columns_of, notes
from gpuprof.reports.html.standalone import StandaloneDrawing, stacked_drawing
from gpuprof.reports.html.templating import make_environment, scripts, source
from gpuprof.roofline.bench.sizes import SizedTime, SizesReport


def render_sizes(report: SizesReport) -> str:
    """The page of `report`. The same report gives the same text."""
    environment = make_environment()
    columns = columns_of(report)
    return environment.get_template("sizes.html").render(
        report=report,
        title=formatting.printable(report.title),
        version=__version__,
        plots=draw_sizes(report),
        columns=columns,
        rows=[
            (one, _row(one, rows, columns))
            for _, members in groupby(report.times, key=lambda one: one.size)
            for rows in [list(members)]
            for one in rows
        ],
        notes=list(notes(report)),
        style=source(environment, "report.css"),
        own_style=source(environment, "sizes.css"),
        script=scripts(environment),
    )


def drawn_sizes(report: SizesReport) -> StandaloneDrawing | None:
    """All plots of `report` in one drawing; None where nothing was timed."""
    title = f"{formatting.printable(report.title)} on {formatting.printable(report.device.name)}"
    return stacked_drawing(render_sizes(report), title)


def _row(one: SizedTime, rows: Sequence[SizedTime], columns: Sequence[str]) -> list[str]:
    found = list(cells(one, rows[0], columns))
    return [*found, *[""] * (len(columns) - len(found))]
