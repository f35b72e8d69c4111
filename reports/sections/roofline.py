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
from gpuprof.reports.sections.level_points import level_points, modelled_places
from gpuprof.reports.sections.link_points import link_coordinates
from gpuprof.reports.sections.module_points import module_points
from gpuprof.reports.sections.roof import roof_sentence
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.machine.ceilings import Ceiling

_STEP_ID = "step-0"
_RIDGE = (
    "Ridge: the arithmetic intensity at which work reaches this ceiling while DRAM's of the same "
    "source feeds it. Work with less is bound by memory."
)


def coordinates(point: RooflinePoint, level: PlotLevel) -> tuple[float, float] | None:
    """Where `point` lies on the axes of `level`; None where one is unknown or not above 0."""
    x, y = point.arithmetic_intensity, point.flops_per_s
    if level.axes == "link":
        x, y = link_coordinates(point)
    if x is None or y is None or not (0 < x < math.inf and 0 < y < math.inf):
        return None
    return x, y


def plot_levels(analysis: Analysis) -> tuple[PlotLevel, ...]:
    """The levels that have points, the one shown first in front."""
    label = kernels.SECTION.title(analysis)
    step = () if analysis.step is None else ((_STEP_ID, analysis.step),)
    levels = (
        _with_rows("kernel", label, analysis.kernels),
        _with_rows("op", "Operators", analysis.ops),
        _with_rows("range", "Ranges", analysis.ranges),
        _modules(analysis),
        PlotLevel("step", "Step", step),
        _counted(analysis),
        PlotLevel("l2", "Kernels at L2", level_points(analysis, "L2")),
        PlotLevel("l1", "Kernels at L1", level_points(analysis, "L1")),
        _links(analysis),
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


def _modules(analysis: Analysis) -> PlotLevel:
    note = "Each module with all modules in it."
    return PlotLevel("module", "Modules", module_points(analysis), note=note)


def _counted(analysis: Analysis) -> PlotLevel:
    """What was counted, with what the models say; without a level where there is no such pair."""
    modelled = modelled_places(analysis)
    points = level_points(analysis, "DRAM") if modelled is not None else ()
    differing = dict(modelled or {})
    note = "As counted by Nsight Compute, at DRAM."
    if differing:
        note += " A line leads from where the models put it, a hollow mark, to what was counted."
    return PlotLevel("counted", "Counted", points, modelled=differing, note=note)


def _links(analysis: Analysis) -> PlotLevel:
    """Kernels that cross a link, against that."""
    points = tuple(
        (row, point)
        for row, point in row_points("kernel", analysis.kernels)
        if point.transfer is not None
    )
    note = (
        "Collectives and copies by the bytes of one call: of collectives the bus bandwidth as "
        "nccl-tests define it, which with waiting for other ranks in it is a lower bound."
    )
    return PlotLevel("link", "Links", points, axes="link", note=note)


def _body(analysis: Analysis) -> Sequence[Block]:
    if not analysis.ceilings:
        return ()
    columns = (
        Column("Ceiling"),
        Column("Rate", "number"),
        Column("Ridge", "number"),
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
            (
                Table(
                    columns,
                    tuple(_row(each, analysis.ceilings) for each in analysis.ceilings),
                    frozenset(roofs),
                ),
                Paragraph(_RIDGE, "note"),
            ),
        ),
    )


def _ridge(ceiling: Ceiling, ceilings: Sequence[Ceiling]) -> float | None:
    """Where DRAM's ceiling of the same source meets it, in FLOP/byte; None without one."""
    same = (each for each in ceilings if each.source == ceiling.source)
    dram = next((each for each in same if each.kind == "memory" and each.level == "DRAM"), None)
    return None if dram is None or ceiling.kind != "compute" else ceiling.rate / dram.rate


def _row(ceiling: Ceiling, ceilings: Sequence[Ceiling]) -> tuple[str, ...]:
    ridge = _ridge(ceiling, ceilings)
    if ceiling.kind == "compute":
        name, rate = f"{ceiling.precision} {ceiling.unit}", formatting.flops_rate(ceiling.rate)
    else:
        way = ", one way" if ceiling.kind == "link" else ""
        name, rate = f"{ceiling.level}{way}", formatting.byte_rate(ceiling.rate)
    dense = ", dense" if ceiling.source != "measured" and ceiling.kind == "compute" else ""
    return (
        name,
        rate,
        "" if ridge is None else f"{formatting.intensity(ridge)} FLOP/byte",
        f"{ceiling.source}{dense}",
        f"{ceiling.clock_mhz} MHz" if ceiling.clock_mhz else "",
        "" if ceiling.spread is None else formatting.percent(ceiling.spread),
        ceiling.conditions,
        ceiling.reference,
    )


def _page_only(analysis: Analysis) -> Sequence[Block]:
    levels = plot_levels(analysis)
    plot: Block = RooflinePlot(levels)
    if not any(
        coordinates(point, level)
        for level in levels
        if level.axes == "work"
        for _, point in level.points
    ):
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
