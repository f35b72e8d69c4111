"""Which ranks the others wait for, and in what the ranks of the job disagree."""

from collections.abc import Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Paragraph, Table
from gpuprof.reports.sections.section import Section, titled
from gpuprof.reports.shapes import readable_shapes
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.classes import OTHER_RANK
from gpuprof.roofline.rank_figures import ClockAlignment, LateCause, RanksAnalysis, Straggler
from gpuprof.roofline.ranks.late_text import (
    at_text,
    cause_text,
    clock_text,
    launches_text,
    left_text,
    ranks_text,
    when_text,
)

# Lines of each kind in a summary, and of those of a page.
_NAMED: Final = 2
_SHOWN: Final = 10
_NOBODY: Final = "no rank is later than ranks and steps vary"
_COLUMNS: Final = (
    Column("Rank", "number"),
    Column("Late by", "number"),
    Column("When"),
    Column("What it has more of"),
    Column("Where, and its device"),
    Column("Step without it", "number"),
)


def _summary(analysis: Analysis) -> Sequence[Block]:
    ranks = analysis.ranks
    if ranks is None:
        return ()
    facts = []
    for late in ranks.stragglers[:_NAMED]:
        cause = "" if not late.causes else f": {_cause_text(late.causes[0])}"
        note = f"makes {_waiting(late)} wait {when_text(late)}{cause}"
        value = f"rank {late.rank}  {formatting.duration(late.late_ns)}"
        facts.append(Fact("Straggler", value, note, kind=OTHER_RANK))
    if ranks.matched and not ranks.stragglers:
        value, note = ("none", _NOBODY) if ranks.stragglers_told else ("not known", _last(ranks))
        facts.append(Fact("Straggler", value, note))
    facts += [
        Fact(
            "Late launches",
            f"rank {late.rank}  {formatting.duration(late.late_ns)}",
            f"a step while it is profiled: {left_text(late)}",
        )
        for late in ranks.late_launches[:_NAMED]
    ]
    facts += [
        Fact("Ranks differ", each.about, each.sentence) for each in ranks.disagreements[:_NAMED]
    ]
    left = len(ranks.disagreements) - _NAMED
    if left > 0:
        facts.append(Fact("", "", f"{formatting.counted(left, 'other difference')} in the report"))
    return (Facts(tuple(facts)),) if facts else ()


def _waiting(late: Straggler) -> str:
    return "all others" if len(late.waiting) > 1 else ranks_text(late.waiting)


def _cause_text(cause: LateCause) -> str:
    shapes = readable_shapes(f"{cause.input_dims} {cause.input_types}".strip(), cause.what)
    return cause_text(cause, shapes)


def _body(analysis: Analysis) -> Sequence[Block]:
    ranks = analysis.ranks
    if ranks is None:
        return ()
    blocks: list[Block] = [
        Paragraph(
            "A rank is late by what it needs for a step by itself beyond what the median of the "
            "others needs, as far as they wait for it in collectives. It is a straggler where that "
            "is more than ranks and steps vary, and more than 1% of the step. Launches are apart: "
            "the profiler makes them late."
        )
    ]
    if ranks.stragglers:
        blocks.append(Table(_COLUMNS, tuple(map(_row, ranks.stragglers[:_SHOWN]))))
        blocks += _more(
            ranks.stragglers, "more rank makes others wait", "more ranks make others wait"
        )
    else:
        blocks.append(Paragraph(_none(ranks), "absent"))
    for said, one, several in (
        (
            [launches_text(late) for late in ranks.late_launches],
            "more rank is late with launches",
            "more ranks are late with launches",
        ),
        (
            [each.sentence for each in ranks.disagreements],
            "more difference",
            "more differences",
        ),
    ):
        blocks += [Paragraph(formatting.sentence(text), "note") for text in said[:_SHOWN]]
        blocks += _more(said, one, several)
    clocks = _clocks(ranks.clocks)
    return (*blocks, Paragraph(clocks, "note")) if clocks else blocks


def _more(all_of_them: Sequence[object], one: str, several: str) -> list[Block]:
    """How many are left out, if any: of a thousand ranks some are always last."""
    left = len(all_of_them) - _SHOWN
    if left <= 0:
        return []
    return [Paragraph(f"{formatting.counted(left, one, several)}: JSON has all.", "note")]


def _none(ranks: RanksAnalysis) -> str:
    if ranks.matched:
        return formatting.sentence(_NOBODY if ranks.stragglers_told else _last(ranks))
    missing = ""
    if ranks.missing:
        are = "is" if len(ranks.missing) == 1 else "are"
        missing = f": {ranks_text(ranks.missing)} of the job {are} not here"
    return f"Who is waited for is unknown: no collective is known of all its ranks{missing}."


def _last(ranks: RanksAnalysis) -> str:
    """Who came last most often, where steps and ranks are too few to say more."""
    last = max(ranks.ranks, key=lambda one: one.came_last)
    if not last.collectives:
        return (
            "in none of the collectives here do all ranks the same, so that one waits for another"
        )
    return (
        f"rank {last.rank} came last to {last.came_last} of {last.collectives} collectives; fewer "
        "than three steps and four ranks do not tell how much they vary"
    )


def _row(late: Straggler) -> tuple[str, ...]:
    where = ["" if late.at is None else at_text(late.at), clock_text(late)]
    return (
        str(late.rank),
        formatting.duration(late.late_ns),
        when_text(late),
        "; ".join(map(_cause_text, late.causes)) or "not known",
        "; ".join(filter(None, where)),
        f"{formatting.duration(late.step_without_ns)} of {formatting.duration(late.step_ns)}",
    )


def _clocks(clocks: ClockAlignment | None) -> str:
    if clocks is None:
        return ""
    if clocks.residual_ns is None:
        return f"The ranks have no common clock: {clocks.reason}."
    ends = max(clock.ends for clock in clocks.clocks)
    furthest = max(clocks.clocks, key=lambda clock: abs(clock.offset_ns))
    apart = formatting.duration(abs(furthest.offset_ns))
    text = (
        f"Clocks are aligned on the ends of up to {ends} shared collectives a rank, which then lie "
        f"within {formatting.duration(clocks.residual_ns)} (95 of 100); that of rank "
        f"{furthest.rank} is furthest from rank {clocks.reference}'s, by {apart}."
    )
    if clocks.unaligned:
        text += f" Without a common clock: {ranks_text(clocks.unaligned)}, for {clocks.reason}."
    return text


SECTION = Section(
    key="waited-for", title=titled("Who is waited for"), of_work=True, summary=_summary, body=_body
)
