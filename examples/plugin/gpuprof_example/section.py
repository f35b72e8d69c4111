"""A section of the report: our operators, and how many elements each call has."""

from collections.abc import Sequence

from gpuprof import Analysis
from gpuprof.reports.blocks import Block, Column, Paragraph, Table
from gpuprof.reports.formatting import duration
from gpuprof.reports.sections.section import Section, titled


def sizes(analysis: Analysis) -> Sequence[Block]:
    """One row for each of our operators and its arguments; nothing where there are none."""
    rows = tuple(
        (point.name, point.detail, str(point.calls), duration(point.device_ns))
        for point in analysis.ops
        if point.name.startswith("example::")
    )
    if not rows:
        return ()
    columns = (
        Column("Operator", "code"),
        Column("Arguments", "code"),
        Column("Calls", "number"),
        Column("Device time", "number"),
    )
    return (Paragraph("Calls and device time in all profiled steps."), Table(columns, rows))


SECTION = Section(key="example-sizes", title=titled("Sizes of example's operators"), body=sizes)
