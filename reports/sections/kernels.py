"""The kernels; on a CPU the operators that call no other."""

from collections.abc import Sequence

from gpuprof.reports.blocks import Block, Paragraph, PointTable
from gpuprof.reports.computed.columns import of_columns
from gpuprof.reports.point_groups import grouped
from gpuprof.reports.sections.roof import roof_sentence
from gpuprof.reports.sections.section import Section
from gpuprof.roofline.analysis import Analysis


def is_cpu(analysis: Analysis) -> bool:
    """True where the device is the CPU, so that each piece of device work is a leaf operator."""
    return analysis.device is not None and analysis.device.kind == "cpu"


def _title(analysis: Analysis) -> str:
    return "Leaf operators" if is_cpu(analysis) else "Kernels"


def _table(analysis: Analysis, column: str) -> PointTable:
    steps = analysis.steps.profiled
    return PointTable("kernel", column, grouped(analysis.kernels), steps, roof_sentence(analysis))


def _summary(analysis: Analysis) -> Sequence[Block]:
    return (_table(analysis, "Kernel"),) if analysis.kernels else ()


def _body(analysis: Analysis) -> Sequence[Block]:
    if not analysis.kernels:
        return (Paragraph("No device work was recorded in the profiled steps.", "absent"),)
    table = _table(analysis, "Leaf operator" if is_cpu(analysis) else "Kernel")
    return (table, *of_columns(analysis.kernels, analysis))


SECTION = Section(
    key="kernels", title=_title, fields=("kernels",), of_work=True, summary=_summary, body=_body
)
