"""The largest operators through all layers, as `gpuprof explain` prints them."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Details, Paragraph
from gpuprof.reports.explanation_facts import layer_facts, unknown_facts, work_title
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis


def _page(analysis: Analysis) -> Sequence[Block]:
    """Each operator folded away; other media have the command."""
    if not analysis.explained:
        return ()
    steps = analysis.steps.profiled
    blocks: list[Block] = [
        Paragraph(
            "Where they come from, which implementation ran and why no other one, their kernels "
            "and how those were launched. gpuprof explain tells the same of all others."
        )
    ]
    for each in analysis.explained:
        point = analysis.ops[each.op]
        share = f"{formatting.percent(point.device_fraction)} of device time"
        title = formatting.printable(f"{work_title(point)}: {share}")
        facts = (*layer_facts(point, each.layers, steps), *unknown_facts(each.layers))
        blocks.append(Details(title, facts))
    return tuple(blocks)


SECTION = Section(
    key="explained",
    title=titled("The largest operators explained"),
    fields=("explained",),
    page_only=_page,
)
