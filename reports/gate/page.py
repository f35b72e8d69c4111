"""The verdicts of a gate as one HTML file; it needs no network, and its tables no script."""

from dataclasses import dataclass

from gpuprof.reports import formatting
from gpuprof.reports.comparison import amounts
from gpuprof.reports.comparison import sentences as comparison_sentences
from gpuprof.reports.comparison.headline import one_process_sentence
from gpuprof.reports.comparison.waterfall import Waterfall, waterfalls
from gpuprof.reports.formatting import sentence
from gpuprof.reports.gate import sentences
from gpuprof.reports.gate.first_look import first_look
from gpuprof.reports.gate.pairs_drawing import draw_pairs
from gpuprof.reports.gate.plot import make_plot
from gpuprof.reports.gate.reasons import Reasons, last_words, reasons
from gpuprof.reports.html.plotly_bundle import embedded_plotly
from gpuprof.reports.html.templating import embedded_json, make_environment, scripts, source
from gpuprof.roofline.gate.result import Explanation, GateResult

_KERNELS = 10


@dataclass(frozen=True)
class Why:
    """What carries the change of one benchmark."""

    explanation: Explanation
    headline: str
    reasons: Reasons
    warnings: tuple[str, ...]
    drawings: tuple[Waterfall, ...]
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
        first_look=first_look(result),
        comparing=amounts,
        rows=rows,
        remarks=[row for row in rows if not sentences.plain(row.judgement)],
        whys=[_why(explanation, result) for explanation in result.explanations],
        last_words=last_words(result),
        plot_json=None if plot is None else embedded_json(plot),
        plot=plot,
        drawing=None if plot is None else draw_pairs(plot),
        style=source(environment, "report.css"),
        compare_style=source(environment, "comparison.css"),
        own_style=source(environment, "gate.css"),
        script=scripts(environment),
        own_script=source(environment, "gate.js"),
        plotly=embedded_plotly() if plot else "",
    )


def _why(explanation: Explanation, result: GateResult) -> Why:
    comparison = explanation.comparison
    changes = comparison.kernels
    return Why(
        explanation,
        headline=one_process_sentence(comparison),
        reasons=reasons(explanation, result),
        # Not its word on noise: that is what the pairs are for.
        warnings=tuple(sentence(formatting.printable(note)) for note in comparison.notes),
        drawings=waterfalls(comparison),
        rows=comparison_sentences.change_rows(changes[:_KERNELS]),
        more=max(0, len(changes) - _KERNELS),
    )
