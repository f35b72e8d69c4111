"""A comparison as one HTML file that needs neither network nor, for its tables, script."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.comparison import amounts, sentences
from gpuprof.reports.comparison.headline import headline
from gpuprof.reports.comparison.places import line_rows, module_rows
from gpuprof.reports.comparison.roofline_picture import VERDICTS, two_rooflines
from gpuprof.reports.comparison.waterfall import waterfalls
from gpuprof.reports.html.templating import PageLink, make_environment, scripts, source
from gpuprof.roofline.comparison.result import Comparison

MOST_ROWS = 500


def render_html(comparison: Comparison, links: Sequence[PageLink] = ()) -> str:
    """The comparison as one HTML file. The same comparison gives the same text."""
    environment = make_environment()
    changes = comparison.kernels
    return environment.get_template("comparison.html").render(
        links=links,
        comparison=comparison,
        sentences=sentences,
        title=formatting.printable(f"{comparison.base.title} → {comparison.head.title}"),
        amounts=amounts,
        headline=headline(comparison),
        drawings=waterfalls(comparison),
        rooflines=two_rooflines(comparison, MOST_ROWS),
        verdict_words=VERDICTS,
        lines=line_rows(comparison)[:MOST_ROWS],
        modules=module_rows(comparison)[:MOST_ROWS],
        rows=sentences.change_rows(changes[:MOST_ROWS]),
        rest=changes[MOST_ROWS:],
        style=source(environment, "report.css"),
        own_style=source(environment, "comparison.css"),
        script=scripts(environment, "comparison.js"),
    )
