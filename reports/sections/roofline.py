"""The roofline itself, its ceilings, and the step as one point."""

import math
from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Column,
    Details,
    Paragraph,
    PlotLevel,
    PointFigures,
    RooflinePlot,
    RowSubject,
    Table,
)
from gpuprof.reports.point_groups import grouped
from gpuprof.reports.point_rows import MOST_ROWS, other_rows, row_points
from gpuprof.reports.sections import kernels
from gpuprof.reports.sections.level_points import level_points
from gpuprof.reports.sections.roof import roof_sentence
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.machine.ceilings import Ceiling

_STEP_ID = "step-0"


def can_be_drawn(point: RooflinePoint) -> bool:
    """True where both coordinates are known and have a logarithm."""
    return bool(
        point.arithmetic_intensity
        and point.flops_per_s
        and math.isfinite(point.arithmetic_intensity)
        and math.isfinite(point.flops_per_s)
    )


def plot_levels(analysis: Analysis) -> tuple[PlotLevel, ...]:
    """The levels that have points, the one shown first in front."""
    label = kernels.SECTION.title(analysis)
    step = () if analysis.step is None else ((_STEP_ID, analysis.step),)
    levels = (
        _with_rows("kernel", label, analysis.kernels),
        _with_rows("op", "Operators", analysis.ops),
        _with_rows("range", "Ranges", analysis.ranges),
        PlotLevel("step", "Step", step),
        PlotLevel("l2", "Kernels at L2", level_points(analysis, "L2")),
        PlotLevel("l1", "Kernels at L1", level_points(analysis, "L1")),
    )
    return tuple(level for level in levels if level.points)


def _with_rows(name: str, label: str, points: Sequence[RooflinePoint]) -> PlotLevel:
    """The level of those of `points` that have a row in the table of `name`."""
    others = other_rows(grouped(points)[MOST_ROWS:])
    return PlotLevel(
        name,
        label,
        row_points(name, points),
        others=0 if others is None else others.number,
        others_fraction=0.0 if others is None else others.device_fraction,
    )


def _body(analysis: Analysis) -> Sequence[Block]:
    if not analysis.ceilings:
        return ()
    columns = (
        Column("Ceiling"),
        Column("Rate", "number"),
        Column("Source"),
        Column("Clock", "number"),
        Column("Spread", "number"),
        Column("Conditions"),
        Column("Reference", "reference"),
    )
    roofs = (
        index
        for index, ceiling in enumerate(analysis.ceilings)
        if ceiling.source == analysis.roof_source
    )
    return (
        Details(
            f"All {len(analysis.ceilings)} ceilings and where they come from",
            (Table(columns, tuple(map(_row, analysis.ceilings)), frozenset(roofs)),),
        ),
    )


def _row(ceiling: Ceiling) -> tuple[str, ...]:
    if ceiling.kind == "compute":
        name, rate = f"{ceiling.precision} {ceiling.unit}", formatting.flops_rate(ceiling.rate)
    else:
        way = ", one way" if ceiling.kind == "link" else ""
        name, rate = f"{ceiling.level}{way}", formatting.byte_rate(ceiling.rate)
    dense = ", dense" if ceiling.source != "measured" and ceiling.kind == "compute" else ""
    return (
        name,
        rate,
        f"{ceiling.source}{dense}",
        f"{ceiling.clock_mhz} MHz" if ceiling.clock_mhz else "",
        "" if ceiling.spread is None else formatting.percent(ceiling.spread),
        ceiling.conditions,
        ceiling.reference,
    )


def _page_only(analysis: Analysis) -> Sequence[Block]:
    levels = plot_levels(analysis)
    plot: Block = RooflinePlot(levels)
    if not any(can_be_drawn(point) for level in levels for _, point in level.points):
        plot = Paragraph(
            "No point has both a FLOP and a byte count, so there is nothing to plot.", "absent"
        )
    step: tuple[Block, ...] = ()
    if analysis.step is not None:
        figures = PointFigures(analysis.step, analysis.steps.profiled)
        step = (
            Details(
                "All figures of the step as one point",
                (figures,),
                subject=RowSubject(_STEP_ID, "step", analysis.step.name),
            ),
        )
    return (Paragraph(roof_sentence(analysis)), plot, *step)


SECTION = Section(
    key="roofline",
    title=titled("Roofline"),
    fields=("ceilings", "roof_source", "step"),
    body=_body,
    page_only=_page_only,
)
