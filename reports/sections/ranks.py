"""The ranks of the job: what each needs by itself, and what it waits for the others."""

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Paragraph, folded_table
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.rank_figures import RankFigures

_COLUMNS: Final = (
    Column("Rank", "number"),
    Column("Step", "number"),
    Column("By itself", "number"),
    Column("Late launches", "number"),
    Column("Waits for others", "number"),
    Column("Came last", "number"),
)


def _body(analysis: Analysis) -> Sequence[Block]:
    ranks = analysis.ranks
    if ranks is None:
        return ()
    lead = Paragraph(
        "Means for one profiled step. By itself: the device works, or its host keeps it from that "
        "as it would without the profiler. Late launches, which the profiler lengthens, are apart. "
        "What a rank waits in collectives for those that come later is known of collectives that "
        f"all their ranks recorded: {ranks.matched} of {ranks.collectives} here."
    )
    rows = tuple(map(_row, ranks.ranks))
    return (lead, *folded_table(_COLUMNS, rows, "ranks"))


def _row(one: RankFigures) -> tuple[str, ...]:
    waits = [step.wait_ns for step in one.steps if step.wait_ns is not None]
    last = f"{one.came_last} of {one.collectives}" if one.collectives else formatting.UNKNOWN
    return (
        str(one.rank),
        _mean([step.length_ns for step in one.steps]),
        _mean([step.own_ns for step in one.steps]),
        _mean([step.launch_ns for step in one.steps]),
        _mean(waits),
        last,
    )


def _mean(lengths_ns: Sequence[int]) -> str:
    return formatting.duration(fmean(lengths_ns)) if lengths_ns else formatting.UNKNOWN


SECTION = Section(key="ranks", title=titled("Ranks"), fields=("ranks",), body=_body)
