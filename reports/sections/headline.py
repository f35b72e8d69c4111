"""What limits the program, what to change first and what that gains: what every report begins with.

Each sentence says no more than the analysis knows: without a split it names what is missing, and a
resource "limits" a step only where more than half of the step goes to it.
"""

from collections.abc import Iterator
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Headline
from gpuprof.reports.sections.advice import NOTHING, where_text
from gpuprof.reports.sections.recorder import stuck_sentence
from gpuprof.roofline.advice_figures import Advice, Binding
from gpuprof.roofline.analysis import NEGLIGIBLE, Analysis
from gpuprof.roofline.classes import (
    AT_ROOF,
    COMPUTE,
    MEMORY,
    OTHER_RANK,
    OUTSIDE,
    UNEXPLAINED,
    UNKNOWN,
    ClassName,
    bottleneck_class,
)
from gpuprof.roofline.ranks.late_text import late_text
from gpuprof.roofline.step_figures import SplitPart, StepSplit, is_another_step

# Of a step: what more of it goes to limits it.
_MOST: Final = 0.5
# Of a step: what less of it goes to is not named.
_NOTABLE: Final = 0.1
_NOT_KNOWN: Final = "what limits the program is not known"
_UNKNOWN_GAIN: Final = "what a change would gain is not known"
_WHOLES: Final = {"the step": "a step"}
_SUBJECTS: Final[dict[ClassName, str]] = {
    COMPUTE: "arithmetic",
    MEMORY: "memory traffic",
    UNKNOWN: "work without a cost model",
    OUTSIDE: "Python outside of operators",
    UNEXPLAINED: "waiting of unknown cause",
}


def headline(analysis: Analysis) -> Headline:
    """The sentence and the first change, of any analysis."""
    split, binds = analysis.split, analysis.binds
    if not analysis.holds_work:
        return Headline(_without_work(analysis), UNKNOWN)
    lost = analysis.bottleneck
    if split is None:
        why = lost.evidence or "no step was recorded"
        sentence = f"{_NOT_KNOWN}, and so is what a change would gain: {why}"
        return Headline(formatting.sentence(sentence), UNKNOWN)
    if binds is None:
        # An analysis of before it was told what binds a step.
        return Headline(
            formatting.sentence(f"the largest loss is {lost.kind}: {lost.evidence}"), lost.kind
        )
    said = [
        _limit(analysis, binds, split),
        *_late_rank(analysis),
        *_other_programs(analysis),
        _gain(analysis, split),
    ]
    sentence = formatting.sentence("; ".join(said))
    first = analysis.advice[0] if analysis.advice else None
    if first is None:
        return Headline(sentence, binds.kind, formatting.sentence(_no_change(analysis, split)))
    return Headline(sentence, binds.kind, formatting.sentence(first.change), _where(first))


def _without_work(analysis: Analysis) -> str:
    """Of dumps and logs of collectives alone."""
    stuck = () if analysis.recorder is None else analysis.recorder.stuck
    if stuck:
        return formatting.sentence(stuck_sentence(stuck[0]))
    return formatting.sentence(f"{_NOT_KNOWN}: no step and no device work is in what was read")


def _limit(analysis: Analysis, binds: Binding, split: StepSplit) -> str:
    step = f"{_WHOLES.get(split.whole, split.whole)} of {formatting.step_duration(split.step_ns)}"
    share = f"{formatting.percent(binds.fraction)} of {step}"
    if binds.kind == UNKNOWN and binds.fraction > _MOST:
        return f"{_NOT_KNOWN}: {share} is {_unmodelled(analysis)}"
    if binds.fraction <= _MOST:
        return f"no one thing limits {step}: {', '.join(_largest(analysis, binds, split))}"
    if not bottleneck_class(binds.kind).idle:
        losses = "".join(f"; {loss}" for loss in _losses(analysis, binds, split))
        return f"limited by {_subject(binds.kind)}: {share}{losses}"
    nothing = "no operator runs" if binds.kind == OUTSIDE else "the device has no work"
    own = split.nanoseconds(binds.kind) / split.step_ns
    for_this = "" if own > binds.fraction - NEGLIGIBLE else f", {formatting.percent(own)} for this"
    doubt = _doubt(analysis, split, binds.kind)
    return f"limited by {_subject(binds.kind)}: for {share} {nothing}{for_this}{doubt}"


def _subject(kind: ClassName) -> str:
    return _SUBJECTS.get(kind) or bottleneck_class(kind).part


def _unmodelled(analysis: Analysis) -> str:
    """What work is of which nothing tells how fast it could be."""
    if analysis.roof_source is None:
        return "work on a device of which no ceiling is known (gpuprof calibrate measures them)"
    unseen_ns = sum(graph.device_ns - graph.with_op_ns for graph in analysis.graphs)
    if unseen_ns > _MOST * analysis.coverage.device_ns:
        return "work of CUDA graphs whose operators are not known"
    return "work without a cost model"


def _losses(analysis: Analysis, binds: Binding, split: StepSplit) -> Iterator[str]:
    """What is lost of a step that a resource binds, and what it waits for other ranks."""
    kinds = dict.fromkeys((analysis.bottleneck.kind, OTHER_RANK))
    for kind in kinds:
        fraction = split.nanoseconds(kind) / split.step_ns
        loss = bottleneck_class(kind).loss
        if loss and kind != UNKNOWN and kind != binds.kind and fraction >= _NOTABLE:
            doubt = _doubt(analysis, split, kind)
            yield f"{formatting.percent(fraction)} is lost, as {loss}{doubt}"


def _largest(analysis: Analysis, binds: Binding, split: StepSplit) -> Iterator[str]:
    """What the step is divided among, where no part is most of it."""
    computing_ns = sum(part.nanoseconds for part in split.parts if _computes(part))
    parts = [(computing_ns / split.step_ns, "computing")]
    if binds.kind in (COMPUTE, MEMORY, UNKNOWN):
        # What is not of the one resource is of the other, or of no model.
        known = split.nanoseconds(UNKNOWN) < NEGLIGIBLE * split.step_ns
        other = _subject(MEMORY if binds.kind == COMPUTE else COMPUTE)
        parts = [
            (binds.fraction, _subject(binds.kind)),
            (
                computing_ns / split.step_ns - binds.fraction,
                other if known and binds.kind != UNKNOWN else "other device work",
            ),
        ]
    for part in split.parts:
        if not _computes(part):
            doubt = _doubt(analysis, split, part.kind)
            parts.append((part.nanoseconds / split.step_ns, f"{_subject(part.kind)}{doubt}"))
    parts = sorted((each for each in parts if each[0] >= _NOTABLE), reverse=True)
    for index, (fraction, name) in enumerate(parts):
        yield f"{formatting.percent(fraction)} {'of it is ' if not index else ''}{name}"


def _computes(part: SplitPart) -> bool:
    return part.kind in (AT_ROOF, UNKNOWN) or bottleneck_class(part.kind).has_roof


def _doubt(analysis: Analysis, split: StepSplit, kind: ClassName) -> str:
    """That the profiler may have made most of a part; "" where it has not."""
    certain_ns = sum(part.certain_ns for part in split.parts if part.kind == kind)
    ranks = analysis.ranks
    if kind == OTHER_RANK and ranks is not None and ranks.late_launches:
        late = (each for each in ranks.stragglers if analysis.rank in each.waiting)
        certain_ns = sum(each.per_step_ns for each in late)
    if certain_ns < split.nanoseconds(kind) / 2:
        return " (most of that may be the profiler's doing)"
    return ""


def _late_rank(analysis: Analysis) -> Iterator[str]:
    if analysis.ranks is not None and analysis.ranks.stragglers:
        yield late_text(analysis.ranks.stragglers[0])


def _other_programs(analysis: Analysis) -> Iterator[str]:
    """That the machine was busy, where that is much of the steps."""
    waiting = analysis.steps.waiting_fraction
    if waiting is not None and waiting >= _NOTABLE:
        share = formatting.percent(waiting)
        yield f"{share} of the timed steps went by waiting for a core that other programs had"


def _gain(analysis: Analysis, split: StepSplit) -> str:
    if analysis.advice:
        first = analysis.advice[0]
        low, high = map(formatting.duration, first.gain_range_ns)
        between = "" if low == high else f" ({low} to {high})"
        gain = formatting.duration(first.gain_ns)
        return f"the best change known would make {split.whole} {gain} shorter{between}"
    if is_another_step(split, analysis.steps) or _is_unmodelled(analysis):
        return _UNKNOWN_GAIN
    nothing = "no single change is known whose gain is above the noise"
    at_roof = split.nanoseconds(AT_ROOF) / split.step_ns
    if at_roof < _MOST:
        return nothing
    needed = f"{formatting.percent(at_roof)} of {split.whole}"
    return f"{nothing}, and {needed} is what its work needs at the device's ceilings"


def _is_unmodelled(analysis: Analysis) -> bool:
    return analysis.binds is not None and analysis.binds.kind == UNKNOWN


def _no_change(analysis: Analysis, split: StepSplit) -> str:
    """Why nothing is advised."""
    steps = analysis.steps
    if is_another_step(split, steps):
        profiled, timed = map(formatting.step_duration, (split.step_ns, steps.length_ns))
        return (
            f"nothing is advised: a profiled step takes {profiled} and a timed one {timed}, so "
            "that the one tells nothing of the other"
        )
    if _is_unmodelled(analysis):
        return "nothing is advised: nothing tells how fast most of the work could be"
    return NOTHING


def _where(advice: Advice) -> str:
    """The largest of its places that has a line or a module, and how many others there are."""
    # Of waiting for whichever rank is last the place is the class itself.
    if not advice.places or where_text(advice.places[0]) == advice.kind:
        return ""
    placed = (each for each in advice.places if each.place or each.module)
    others = len(advice.places) - 1 + advice.other_places
    more = f", and {formatting.counted(others, 'other place')}" if others else ""
    return f"{where_text(next(placed, advice.places[0]))}{more}"
