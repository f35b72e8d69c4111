"""What binds the step, and what to change in the program, most gain first."""

from collections.abc import Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Column,
    ComputedFigure,
    ComputedFigures,
    Fact,
    Facts,
    Paragraph,
    Table,
)
from gpuprof.reports.computed.formulas import computation, seconds
from gpuprof.reports.computed.gains import of_gain
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.advice_figures import Advice, AdvicePlace, Binding
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.classes import bottleneck_class
from gpuprof.roofline.step_figures import StepSplit

# Changes that the summary names.
_NAMED: Final = 3
# Where more of a step goes, what is left of it says more.
_MOST_OF_IT: Final = 0.5
_COLUMNS: Final = (
    Column("#", "number"),
    Column("Change"),
    Column("Where"),
    Column("Gain"),
    Column("What shows it, and what is assumed"),
)
NOTHING: Final = "no single change found whose gain is above the noise"


def binding_fact(binds: Binding, split: StepSplit) -> Fact:
    """What most of the step goes to; of waiting, also how much has the cause that is named."""
    row = bottleneck_class(binds.kind)
    share = f"{formatting.percent(binds.fraction)} of {split.whole}"
    own_ns, note = split.nanoseconds(binds.kind), f"{share}: {row.meaning}"
    if row.idle and own_ns < binds.nanoseconds:
        own = formatting.percent(own_ns / split.step_ns)
        note = f"{share} has no device work; {own} is {row.part}"
    return Fact("Bound by", binds.kind, note, kind=binds.kind)


def where_text(place: AdvicePlace) -> str:
    """Where it is, as exactly as is known: "train.py:42 aten::mm in layers.3.attention"."""
    module = f"in {place.module}" if place.module else ""
    return " ".join(part for part in (place.place, place.what, module) if part)


def _summary(analysis: Analysis) -> Sequence[Block]:
    binds, split = analysis.binds, analysis.split
    if binds is None or split is None:
        return ()
    facts = []
    for index, advice in enumerate(analysis.advice[:_NAMED]):
        facts.append(_advice_fact("To change" if not index else "", advice, split))
    if not analysis.advice:
        facts.append(Fact("To change", NOTHING))
    left = len(analysis.advice) - _NAMED
    if left > 0:
        facts.append(Fact("", "", f"{formatting.counted(left, 'other change')} in the report"))
    return (Facts(tuple(facts)),)


def _advice_fact(label: str, advice: Advice, split: StepSplit) -> Fact:
    where = f"{where_text(advice.places[0])}: " if advice.places else ""
    # Of a step, unless something else is said.
    whole = "" if split.basis == "timed" else f"of {split.whole} "
    between = _between(advice, split.step_ns)
    between = f"({between}) " if between else ""
    return Fact(
        label,
        f"-{formatting.duration(advice.gain_ns)}",
        f"{whole}{between}{where}{advice.change}",
        kind=advice.kind,
    )


def _body(analysis: Analysis) -> Sequence[Block]:
    binds, split = analysis.binds, analysis.split
    if binds is None or split is None:
        return ()
    blocks: list[Block] = [Facts((binding_fact(binds, split),))]
    if not analysis.advice:
        nothing = Paragraph(formatting.sentence(NOTHING), "absent")
        return (*blocks, nothing, _computed(analysis, binds, split))
    rows = tuple(
        _row(number, advice, split.step_ns)
        for number, advice in enumerate(analysis.advice, start=1)
    )
    return (
        *blocks,
        Paragraph(
            f"Each row is one change with what it alone would save of {split.whole}; together they "
            "save less. Work is compared with what good kernels of its kind reach, not with the "
            "roof itself."
        ),
        Table(_COLUMNS, rows),
        _computed(analysis, binds, split),
    )


def _computed(analysis: Analysis, binds: Binding, split: StepSplit) -> ComputedFigures:
    share = computation("bound by", b=seconds(binds.nanoseconds), T=seconds(split.step_ns))
    return ComputedFigures(
        "How these figures are computed",
        (
            ComputedFigure(f"Bound by {binds.kind}", formatting.percent(binds.fraction), share),
            *(
                ComputedFigure(
                    f"Gain of {number}, {each.finding}",
                    formatting.duration(each.gain_ns),
                    of_gain(each, analysis),
                )
                for number, each in enumerate(analysis.advice, start=1)
            ),
        ),
    )


def _row(number: int, advice: Advice, step_ns: int) -> tuple[str, ...]:
    others = f"and {advice.other_places} more" if advice.other_places else ""
    places = [*map(where_text, advice.places), others]
    share = formatting.percent(advice.gain_ns / step_ns if step_ns else None)
    between = _between(advice, step_ns)
    between = f"; {between}" if between else ""
    uncertain = f" {formatting.sentence(advice.uncertain)}" if advice.uncertain else ""
    return (
        str(number),
        formatting.sentence(advice.change),
        "; ".join(place for place in places if place),
        f"{formatting.duration(advice.gain_ns)}, {share}{between}",
        f"{formatting.sentence(advice.evidence)} Assumed: {advice.assumption}.{uncertain}",
    )


def _between(advice: Advice, step_ns: int) -> str:
    """Within which the gain lies; of one that most of the step goes by, what it leaves."""
    least_ns, most_ns = advice.gain_range_ns
    if advice.gain_ns > _MOST_OF_IT * step_ns:
        shortest, longest = (formatting.duration(step_ns - ns) for ns in (most_ns, least_ns))
        left = formatting.duration(step_ns - advice.gain_ns)
        return f"leaves {left}" + ("" if shortest == longest else f", {shortest} to {longest}")
    low, high = map(formatting.duration, advice.gain_range_ns)
    return "" if low == high else f"{low} to {high}"


SECTION = Section(
    key="advice",
    title=titled("What to change"),
    fields=("binds", "advice"),
    summary=_summary,
    body=_body,
)
