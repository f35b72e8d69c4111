"""The verdicts of a gate as one HTML file; it needs no network, and its tables no script."""

from dataclasses import dataclass

import msgspec
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from gpuprof.reports import formatting
from gpuprof.reports.comparison import page as comparison_page
from gpuprof.reports.comparison import sentences as comparison_sentences
from gpuprof.reports.formatting import sentence
from gpuprof.reports.gate import sentences
from gpuprof.reports.html.templating import embedded_json, make_environment, source
from gpuprof.roofline.gate.judgement import Judgement, Verdict
from gpuprof.roofline.gate.result import Explanation, GateResult
from gpuprof.roofline.gate.series import TIME

# More rows of a plot can neither be read nor drawn quickly.
MOST_PLOTTED = 60
_KERNELS = 10


class PlotRow(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one benchmark in the plot. Changes are in per cent."""

    label: str
    verdict: Verdict
    pairs: tuple[float, ...]
    mean: float
    interval: tuple[float, float] | None
    # Over this the gate fails it, on the side that is worse.
    limit: float | None


class Plot(msgspec.Struct, frozen=True):
    """The paired differences, the row for the top first."""

    rows: tuple[PlotRow, ...]
    # How many rows have no place in it, in words, or "".
    note: str


@dataclass(frozen=True)
class Why:
    """What carries the change of one benchmark."""

    explanation: Explanation
    headline: str
    culprits: tuple[str, ...]
    warnings: tuple[str, ...]
    bars: tuple[comparison_page.Bar, ...]
    rows: tuple[comparison_sentences.ChangeRow, ...]
    more: int


def render_html(result: GateResult) -> str:
    """The verdicts as one HTML file. The same result gives the same text."""
    environment = make_environment()
    rows = sentences.rows(result.judgements)
    plot = make_plot(result)
    return environment.get_template("gate.html").render(
        result=result,
        sentences=sentences,
        comparing=comparison_sentences,
        rows=rows,
        remarks=[row for row in rows if not sentences.plain(row.judgement)],
        whys=[_why(explanation) for explanation in result.explanations],
        plot_json=None if plot is None else embedded_json(plot),
        plot=plot,
        # Markup: these are this package's own files and plotly's, not data.
        style=source(environment, "report.css"),
        compare_style=source(environment, "comparison.css"),
        own_style=source(environment, "gate.css"),
        script=source(environment, "report.js"),
        own_script=source(environment, "gate.js"),
        plotly=Markup(get_plotlyjs()) if plot else "",
    )


def make_plot(result: GateResult) -> Plot | None:
    """The paired differences of what was judged by statistics; None where nothing was."""
    judged = [
        row.judgement
        for row in sentences.rows(result.judgements)
        if row.judgement.pair_changes and row.judgement.change is not None
    ]
    if not judged:
        return None
    shown = tuple(_plot_row(judgement, result) for judgement in judged[:MOST_PLOTTED])
    more = len(judged) - len(shown)
    note = f"Not in this plot: {more} more; the table below has them." if more else ""
    return Plot(shown, note)


def _plot_row(judgement: Judgement, result: GateResult) -> PlotRow:
    assert judgement.change is not None
    name = judgement.benchmark
    if judgement.metric != TIME:
        name = f"{name} {judgement.metric.name}"
    return PlotRow(
        label=formatting.printable(name),
        verdict=judgement.verdict,
        pairs=tuple(100 * change for change in judgement.pair_changes),
        mean=100 * judgement.change,
        interval=judgement.interval and (100 * judgement.interval[0], 100 * judgement.interval[1]),
        limit=None if judgement.limit is None else 100 * judgement.limit,
    )


def _why(explanation: Explanation) -> Why:
    comparison = explanation.comparison
    changes = comparison.kernels
    return Why(
        explanation,
        headline=comparison_sentences.headline(comparison),
        culprits=sentences.culprit_lines(explanation),
        # Not its word on noise: that is what the pairs are for.
        warnings=tuple(sentence(formatting.printable(note)) for note in comparison.notes),
        bars=comparison_page.waterfall(comparison),
        rows=comparison_sentences.change_rows(changes[:_KERNELS]),
        more=max(0, len(changes) - _KERNELS),
    )
