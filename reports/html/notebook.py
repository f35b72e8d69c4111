"""A report as the output of a notebook's cell: a short table, and the page in a frame.

A notebook that is not trusted, as one that was mailed, loses the frame to the sanitiser of its
viewer, and a viewer that is no browser shows neither: the table is there in each case.
"""

from pathlib import Path

from markupsafe import Markup

from gpuprof.reports.blocks import Fact
from gpuprof.reports.html.page import render_html
from gpuprof.reports.html.templating import make_environment
from gpuprof.reports.sections.headline import headline
from gpuprof.reports.sections.overview import device_line
from gpuprof.reports.sections.step import step_time_fact
from gpuprof.reports.utilization import headline_fact
from gpuprof.roofline.analysis import Analysis

# The address of a page in a frame, without which its links would lead into the notebook's.
_OWN_ADDRESS = Markup('<base href="about:srcdoc">')


def notebook_html(analysis: Analysis, capture: Path | None = None) -> str:
    """`analysis`, of the stored `capture`, as HTML that a notebook shows."""
    said = headline(analysis)
    rows = [Fact("Change", said.change, said.where)] if said.change else []
    if analysis.holds_work:
        rows += [step_time_fact(analysis.steps), headline_fact(analysis)]
    page = render_html(analysis).replace("<head>", f"<head>{_OWN_ADDRESS}", 1)
    return (
        make_environment()
        .get_template("notebook.html")
        .render(
            analysis=analysis,
            device_line=device_line(analysis),
            sentence=said.sentence,
            rows=rows,
            capture=capture,
            page=page,
        )
    )
