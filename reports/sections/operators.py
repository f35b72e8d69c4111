"""The operators, each signature with all kernels that it launched."""

from collections.abc import Sequence

from gpuprof.reports.blocks import Block, PointTable
from gpuprof.reports.computed.columns import of_columns
from gpuprof.reports.point_groups import grouped
from gpuprof.reports.sections.roof import roof_sentence
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis


def _body(analysis: Analysis) -> Sequence[Block]:
    if not analysis.ops:
        return ()
    steps = analysis.steps.profiled
    table = PointTable("op", "Operator", grouped(analysis.ops), steps, roof_sentence(analysis))
    return (table, *of_columns(analysis.ops, analysis))


SECTION = Section(key="ops", title=titled("Operators"), fields=("ops",), body=_body)
