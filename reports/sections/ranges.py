"""The user's ranges: how long they were open, and the device work in them on the roofline."""

from collections.abc import Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Paragraph, PointTable, RowSubject, Table
from gpuprof.reports.computed.columns import of_columns
from gpuprof.reports.figures import per_step
from gpuprof.reports.point_groups import grouped
from gpuprof.reports.sections.roof import roof_sentence
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.range_figures import RangeTime, RanInRange

_SHOWN: Final = 40
_COLUMNS: Final = (
    Column("Range", "code"),
    Column("In", "code"),
    Column("Passes", "number"),
    Column("Open", "number"),
    Column("Itself", "number"),
    Column("Device", "number"),
    Column("Most of it"),
)
# Domains that say nothing about who put the range there.
_PLAIN: Final = ("nvtx", "record_function", "region")


def _row(one: RangeTime, steps: int) -> tuple[str, ...]:
    device = formatting.UNKNOWN
    if one.device_ns is not None:
        device = formatting.duration(per_step(steps, one.device_ns))
    return (
        one.name if one.domain in _PLAIN else f"{one.name} ({one.domain})",
        one.parent,
        formatting.count(per_step(steps, one.passes)),
        formatting.duration(per_step(steps, one.wall_ns)),
        formatting.duration(per_step(steps, one.own_ns)),
        device,
        ", ".join(_ran(each, steps) for each in one.ran),
    )


def _ran(one: RanInRange, steps: int) -> str:
    took_ns = one.device_ns if one.device_ns is not None else one.host_ns or 0
    return f"{one.name} {formatting.duration(per_step(steps, took_ns))}"


def _lead(analysis: Analysis) -> str:
    figures = "Means for one profiled step" if analysis.steps.profiled else "Totals"
    return (
        f"{figures}. Open: the host was between the two ends of the range, lengthened by the "
        "profiler where one ran; itself: in none of the ranges nested in it. Device: the device "
        "work that was launched in it, whenever it ran. The last column has its operators by "
        "device time, by host time where it holds no device work."
    )


def _times(analysis: Analysis) -> Sequence[Block]:
    found, steps = analysis.range_times, analysis.steps.profiled
    if not found:
        return ()
    table = Table(
        _COLUMNS,
        tuple(_row(one, steps) for one in found[:_SHOWN]),
        subjects=tuple(
            RowSubject(f"range-time-{index}", "range", one.name)
            for index, one in enumerate(found[:_SHOWN])
        ),
    )
    blocks: list[Block] = [Paragraph(_lead(analysis)), table]
    if len(found) > _SHOWN:
        longest = formatting.duration(per_step(steps, found[_SHOWN].wall_ns))
        more = f"{len(found) - _SHOWN} more ranges were open for {longest} or less."
        blocks.append(Paragraph(more, "note"))
    return blocks


def _body(analysis: Analysis) -> Sequence[Block]:
    blocks = [*_times(analysis)]
    if analysis.ranges:
        steps = analysis.steps.profiled
        points = PointTable(
            "range", "Range", grouped(analysis.ranges), steps, roof_sentence(analysis)
        )
        blocks += [points, *of_columns(analysis.ranges, analysis)]
    return blocks


SECTION = Section(
    key="ranges", title=titled("Ranges"), fields=("ranges", "range_times"), body=_body
)
