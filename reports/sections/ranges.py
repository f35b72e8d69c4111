"""The user's ranges."""

from collections.abc import Sequence

from gpuprof.reports.blocks import Block, PointTable
from gpuprof.reports.point_groups import grouped
from gpuprof.reports.sections.roof import roof_sentence
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis


def _body(analysis: Analysis) -> Sequence[Block]:
    if not analysis.ranges:
        return ()
    steps = analysis.steps.profiled
    return (PointTable("range", "Range", grouped(analysis.ranges), steps, roof_sentence(analysis)),)


SECTION = Section(key="ranges", title=titled("Ranges"), fields=("ranges",), body=_body)
