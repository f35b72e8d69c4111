"""Fills the page: everything in one file that needs neither network nor, for its tables, script."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Heading,
    Line,
    MeasuredTable,
    MemoryPlot,
    PointTable,
    RooflinePlot,
    TimelinePlot,
)
from gpuprof.reports.computed.sections import SectionRule, section_rules
from gpuprof.reports.html.chart import make_chart
from gpuprof.reports.html.plotly_bundle import embedded_plotly
from gpuprof.reports.html.row_links import row_links
from gpuprof.reports.html.templating import (
    PageLink,
    embedded_json,
    make_environment,
    scripts,
    source,
)
from gpuprof.reports.sections import sections_of
from gpuprof.reports.sections.overview import device_line
from gpuprof.reports.sections.section import Section
from gpuprof.roofline.analysis import Analysis


@dataclass(frozen=True)
class PageSection:
    """A section with what it shows; `count` is how many rows its table has in all, and `rule` what
    its figures rest on."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    count: int | None
    rule: SectionRule | None


def render_html(analysis: Analysis, links: Sequence[PageLink] = ()) -> str:
    """The report as one HTML file. The same analysis gives the same text."""
    environment = make_environment()
    sections = [
        found for each in sections_of(analysis) if (found := _section(each, analysis)) is not None
    ]
    blocks = [block for each in sections for block in each.blocks]
    plots = [block for block in blocks if isinstance(block, RooflinePlot)]
    memory = any(isinstance(block, MemoryPlot) for block in blocks)
    timeline = any(isinstance(block, TimelinePlot) for block in blocks)
    chart = make_chart(analysis, plots[0].levels) if plots else None
    return environment.get_template("report.html").render(
        links=links,
        analysis=analysis,
        title=formatting.printable(analysis.title),
        device_line=device_line(analysis),
        sections=sections,
        chart=chart,
        chart_json=None if chart is None else embedded_json(chart),
        style=source(environment, "report.css"),
        memory_style=source(environment, "memory.css") if memory else "",
        timeline_style=source(environment, "timeline.css") if timeline else "",
        row_links=row_links(analysis),
        script=scripts(
            environment,
            "selection.js",
            *(("ceiling_labels.js", "roofline.js") if chart else ()),
            *(("timeline.js", "timeline_controls.js") if timeline else ()),
        ),
        memory_script=source(environment, "memory.js") if memory else "",
        plotly=embedded_plotly() if chart or memory else "",
    )


def _section(section: Section, analysis: Analysis) -> PageSection | None:
    """`section` without what stands in the page's head; None where nothing is left."""
    found = (*section.page_only(analysis), *section.body(analysis))
    blocks = tuple(block for block in found if not isinstance(block, Heading | Line))
    if not blocks:
        return None
    title, rule = section.title(analysis), section_rules().get(section.key)
    return PageSection(section.key, title, blocks, _count(blocks), rule)


def _count(blocks: Sequence[Block]) -> int | None:
    for block in blocks:
        if isinstance(block, PointTable):
            return len(block.points)
        if isinstance(block, MeasuredTable):
            return len(block.rows)
    return None
