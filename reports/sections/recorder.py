"""Who hangs in which collective, from dumps of torch's flight recorder and logs of NCCL."""

from collections.abc import Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Paragraph, Table
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.ranks.rank_text import ranks_text
from gpuprof.roofline.recorder_figures import (
    Disagreement,
    RecordedCall,
    RecorderFindings,
    StuckCollective,
)

_NAMED: Final = 3
_MOST_ROWS: Final = 50
_COLUMNS: Final = (
    Column("Group"),
    Column("#", "number"),
    Column("Collective"),
    Column("Message", "number"),
    Column("In it"),
    Column("Not entered"),
    Column("Left it"),
    Column("Line"),
)
_CALL_COLUMNS: Final = (
    Column("Ranks"),
    Column("Collective"),
    Column("Tensors"),
    Column("Line"),
)


def _named_ranks(ranks: Sequence[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {ranks_text(ranks)}"


def _group_text(group: str, description: str) -> str:
    own = "" if description in ("", "undefined", group) else f" ({description})"
    return f"group {group or 'without a name'}{own}"


def _call_text(stuck: StuckCollective) -> str:
    number = "" if stuck.sequence is None else f" #{stuck.sequence}"
    return f"{stuck.calls[0].collective}{number}"


def stuck_sentence(stuck: StuckCollective) -> str:
    """ "ranks 0-2 wait in all_reduce #41 of group 0 (4.19 MB, train.py:40 step); rank 3 has not
    entered it: its last is ..."."""
    call = stuck.calls[0]
    facts = [
        "" if call.message_bytes is None else formatting.byte_count(call.message_bytes),
        call.line,
    ]
    told = ", ".join(fact for fact in facts if fact)
    where = _group_text(stuck.group, stuck.description)
    verbs = ("waits in", "wait in") if stuck.ends_recorded else ("has entered", "have entered")
    verb = verbs[len(stuck.waiting) > 1]
    said = f"{_named_ranks(stuck.waiting)} {verb} {_call_text(stuck)} of {where}"
    return f"{said}{f' ({told})' if told else ''}; {_why(stuck)}"


def _why(stuck: StuckCollective) -> str:
    reasons = []
    if len(stuck.calls) > 1:
        reasons.append(f"ranks disagree: {_forms(stuck.calls)}")
    if stuck.not_entered:
        has = "has" if len(stuck.not_entered) == 1 else "have"
        said = f"{_named_ranks(stuck.not_entered)} {has} not entered it"
        if stuck.last_calls:
            said += f": {'; '.join(map(_last, stuck.last_calls[:_NAMED]))}"
        reasons.append(said)
    if not stuck.ends_recorded:
        reasons.append(
            "the log does not say which collectives ended: that of a program that runs on, or was "
            "ended, may stop like this"
        )
    if stuck.unknown:
        reasons.append(f"of {_named_ranks(stuck.unknown)} nothing is known")
    if not reasons and stuck.members_known:
        reasons.append(
            "all ranks have entered it alike: either it still ran when the recorder was read, or "
            "the transfer itself does not end"
        )
    if not reasons:
        reasons.append("who else is in its group was not recorded")
    return "; ".join(reasons)


def _last(call: RecordedCall) -> str:
    state = {True: ", which ended", False: ", in which it waits", None: ""}[call.finished]
    number = "" if call.sequence is None else f" #{call.sequence}"
    line = f", {call.line}" if call.line else ""
    where = f"of group {call.group}" if call.group else ""
    return (
        f"the last of rank {call.ranks[0]} is {call.collective}{number} {where}".rstrip()
        + f"{line}{state}"
    )


def _forms(calls: Sequence[RecordedCall]) -> str:
    """Each form of one collective, with the ranks that recorded it."""
    alike = len({call.collective for call in calls}) == 1
    return "; ".join(
        f"{_named_ranks(call.ranks)} {call.tensors if alike else call.collective}"
        for call in calls[:_NAMED]
    )


def _disagreement_sentence(one: Disagreement) -> str:
    where = _group_text(one.group, one.description)
    name = one.calls[0].collective if len({c.collective for c in one.calls}) == 1 else "collective"
    return f"{name} #{one.sequence} of {where}: {_forms(one.calls)}"


def _summary(analysis: Analysis) -> Sequence[Block]:
    found = analysis.recorder
    if found is None:
        return ()
    facts = [
        Fact("Stuck" if not index else "", _call_text(one), stuck_sentence(one))
        for index, one in enumerate(found.stuck[:_NAMED])
    ]
    if not found.stuck:
        facts.append(Fact("Stuck", "nothing", _told(found)))
    others = [one for one in found.disagreements if not _is_told(one, found.stuck[:_NAMED])]
    facts += [
        Fact("Ranks disagree" if not index else "", _group_text(one.group, ""), sentence)
        for index, one in enumerate(others[:_NAMED])
        if (sentence := _disagreement_sentence(one))
    ]
    return (Facts(tuple(facts)),)


def _is_told(one: Disagreement, stuck: Sequence[StuckCollective]) -> bool:
    return any((one.group, one.sequence) == (each.group, each.sequence) for each in stuck)


def _told(found: RecorderFindings) -> str:
    return (
        f"{formatting.count(found.records)} collectives of {len(found.ranks)} ranks in "
        f"{formatting.counted(found.groups, 'group')} were recorded"
    )


def _body(analysis: Analysis) -> Sequence[Block]:
    found = analysis.recorder
    if found is None:
        return ()
    blocks: list[Block] = [
        Paragraph(
            f"{_told(found)}: {_named_ranks(found.ranks)}. Of each group the first collective "
            "stands here that a rank entered and did not leave."
        )
    ]
    if found.stuck:
        shown = found.stuck[:_MOST_ROWS]
        blocks.append(Table(_COLUMNS, tuple(map(_row, shown))))
        blocks += [Paragraph(formatting.sentence(stuck_sentence(one))) for one in shown[:_NAMED]]
    else:
        blocks.append(Paragraph("No rank waits in any."))
    for one in found.disagreements[:_MOST_ROWS]:
        blocks.append(Paragraph(f"Ranks disagree: {_disagreement_sentence(one)}."))
        rows = tuple(
            (ranks_text(call.ranks), call.collective, call.tensors, call.line) for call in one.calls
        )
        blocks.append(Table(_CALL_COLUMNS, rows))
    return tuple(blocks)


def _row(stuck: StuckCollective) -> tuple[str, ...]:
    call = stuck.calls[0]
    return (
        _group_text(stuck.group, stuck.description).removeprefix("group "),
        formatting.UNKNOWN if stuck.sequence is None else str(stuck.sequence),
        call.collective,
        formatting.byte_count(call.message_bytes),
        ranks_text(stuck.waiting),
        ranks_text(stuck.not_entered),
        ranks_text(stuck.left),
        call.line,
    )


SECTION = Section(
    key="recorder",
    title=titled("Stuck collectives"),
    fields=("recorder",),
    summary=_summary,
    body=_body,
)
