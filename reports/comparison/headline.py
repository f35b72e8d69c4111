"""A comparison in one sentence: by how much slower or faster, because of what, and where."""

from gpuprof.reports import formatting
from gpuprof.reports.comparison.amounts import delta, signed_percent
from gpuprof.roofline.classes import AT_ROOF, UNKNOWN
from gpuprof.roofline.comparison.main_cause import MainCause
from gpuprof.roofline.comparison.result import Comparison, Lengths

# Two runs of one program on one machine differ by so much, however little the steps of each do.
LEAST_CHANGE = 0.01
# Of the step's change: from this share on a part is most of it.
_MOST = 0.5
# Parts whose labels are no words of a sentence. The first grows with the work, and shrinks on a
# faster device.
_IN_A_SENTENCE = {
    AT_ROOF: "what its work needs at the roof",
    UNKNOWN: "work without a model or ceiling",
}


def headline(comparison: Comparison) -> str:
    """The change of the step, its main cause and the place of that, in one line."""
    lengths = comparison.lengths
    if lengths is None:
        return "Nothing to compare"
    if not lengths.change_ns:
        return f"No change: {lengths.quantity} {formatting.duration(lengths.base_ns, 4)}"
    if is_noise(comparison):
        return f"No clear change: {_change(lengths)}"
    verdict = "Slower" if lengths.change_ns > 0 else "Faster"
    if comparison.strict_differences:
        verdict += ", in another environment"
    if lengths.quantity == "step time" and (comparison.base.doubts or comparison.head.doubts):
        verdict += ", with timed steps in doubt"
    return f"{verdict}: {change_and_cause(comparison)}"


def change_and_cause(comparison: Comparison) -> str:
    """The change and its main cause without a word on whether it is noise: "step time A → B"."""
    lengths = comparison.lengths
    if lengths is None:
        return "nothing to compare"
    return f"{_change(lengths)}{_because(comparison)}"


def one_process_sentence(comparison: Comparison) -> str:
    """For a gate, whose pairs and not this comparison tell whether there is a change."""
    return f"In one process of each side: {change_and_cause(comparison)}."


def is_noise(comparison: Comparison) -> bool:
    """Whether one run of each side cannot tell the change from noise."""
    lengths = comparison.lengths
    if lengths is None or lengths.change is None:
        return False
    return abs(lengths.change) <= LEAST_CHANGE or is_within_spread(comparison)


def is_within_spread(comparison: Comparison) -> bool:
    """Whether the timed steps of one run differ among themselves by as much as the two runs do."""
    lengths, spread = comparison.lengths, largest_spread(comparison)
    if lengths is None or lengths.change is None or lengths.quantity != "step time":
        return False
    return spread is not None and abs(lengths.change) <= spread


def largest_spread(comparison: Comparison) -> float | None:
    """The larger interquartile range of the two sides, over the median."""
    sides = (comparison.base, comparison.head)
    return max((s.relative_spread for s in sides if s.relative_spread is not None), default=None)


def _change(lengths: Lengths) -> str:
    before, after = (formatting.duration(ns, 4) for ns in (lengths.base_ns, lengths.head_ns))
    change = f"{delta(lengths.change_ns)}, {signed_percent(lengths.change)}"
    return f"{lengths.quantity} {before} → {after} ({change})"


def _because(comparison: Comparison) -> str:
    cause, step, lengths = comparison.main_cause, comparison.step, comparison.lengths
    if cause is None or step is None or lengths is None:
        return ""
    if (step.change_ns > 0) != (lengths.change_ns > 0):
        # What changed in profiled steps says nothing of timed ones that went the other way.
        return ""
    inside = "" if step.lengths == lengths else f"in the {step.lengths.quantity} "
    much = "mostly" if abs(cause.change_ns) >= _MOST * abs(step.change_ns) else "most of all"
    return f", {inside}{much} {_part(cause)} ({delta(cause.change_ns)}){_where(cause)}"


def _part(cause: MainCause) -> str:
    return _IN_A_SENTENCE.get(cause.kind or "", cause.part)


def _where(cause: MainCause) -> str:
    for place, before, change_ns in (
        (cause.line, "at", cause.line_change_ns),
        (cause.operator, "in", cause.operator_change_ns),
    ):
        if place and change_ns is not None:
            # What a part is one line's alone needs no second figure.
            same = delta(change_ns) == delta(cause.change_ns)
            figure = "" if same else f" ({delta(change_ns)})"
            return f", {before} {formatting.printable(place)}{figure}"
    return ""
