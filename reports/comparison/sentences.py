"""What a comparison says, as sentences and rows: the words shared by every form of it."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact
from gpuprof.reports.comparison.amounts import before_after, delta, signed_percent
from gpuprof.reports.comparison.headline import (
    LEAST_CHANGE,
    is_noise,
    is_within_spread,
    largest_spread,
)
from gpuprof.reports.formatting import joined, sentence
from gpuprof.reports.shapes import readable_shapes
from gpuprof.roofline.classes import bottleneck_class
from gpuprof.roofline.comparison.kernel_changes import KernelChange, KernelSide, Match
from gpuprof.roofline.comparison.result import ComparedSide, Comparison, StepChange

# From this share on, what the parts leave over is said in words.
_MUCH_UNEXPLAINED = 0.2
# Causes of waiting: from so many on they are named, and so many of them.
_SEVERAL = 2
_MOST_CAUSES = 3
HOW: dict[Match, str] = {
    "name": "same name",
    "normalised name": "same name except for tile, architecture or counter",
    "operator": "same operator and shapes",
    "fused": "the compiler's kernels have these operators in their names",
    "time": "a guess: the same number of calls, about the same time",
    "new": "new",
    "removed": "gone",
}


@dataclass(frozen=True)
class Part:
    """One part of the step's change. `key` names its colour."""

    key: str
    label: str
    change_ns: float
    note: str = ""


@dataclass(frozen=True)
class ChangeRow:
    """One kernel before and after. Texts are printable."""

    title: str
    subtitle: str
    op: str
    shapes: str
    # "", or what its two names are: "renamed", "fused", "new", "gone".
    badge: str
    match: str
    change: KernelChange
    calls: str
    time: str
    # "count +20 µs, mean -3 µs"
    split: str
    # "memory -> compute, 45.0% -> 61.2%": the share is of the roof
    roofline: str


# The two splits of the step's change, and of what its places are.
KERNEL_PARTS = "The same change by kernels"
LINES = "By line of the program"
MODULES = "By module"
PLACES_NOTE = (
    "Device work counts in full, also where other work hides it; waiting is time without device "
    "work because of what the line does."
)
MODULES_NOTE = "Own is what no module inside it does: the changes of it add up."


def parts_title(comparison: Comparison) -> str:
    """What the parts add up to, where that is not the line at the head."""
    title = "Where the change comes from"
    if comparison.step is None or comparison.step.lengths == comparison.lengths:
        return title
    lengths = comparison.step.lengths
    before, after = (formatting.duration(ns, 4) for ns in (lengths.base_ns, lengths.head_ns))
    return f"{title}, of the {lengths.quantity} {before} → {after}"


def caution(comparison: Comparison) -> str:
    """A sentence where the change may be noise; else ""."""
    lengths = comparison.lengths
    if lengths is None or not lengths.change_ns or not is_noise(comparison):
        return ""
    why = f"two runs of one program differ by up to {formatting.percent(LEAST_CHANGE)}"
    if is_within_spread(comparison):
        spread = formatting.percent(largest_spread(comparison))
        why = f"the change is within the spread of the steps (interquartile range {spread})"
    return f"{why}: one run of each cannot tell it from noise; gpuprof gate can"


def side_line(side: ComparedSide) -> str:
    """What one of the two captures is."""
    steps = joined(
        f"{count} {phase}"
        for count, phase in ((side.timed, "timed"), (side.profiled, "profiled"))
        if count
    )
    clock = side.state.sm_clock_mhz_median if side.state is not None else None
    return joined(
        (
            formatting.printable(side.title),
            f"rank {side.rank} of {side.world_size}" if side.world_size > 1 else "",
            formatting.printable(side.device) or "no device recorded",
            f"{steps} steps" if steps else "no steps",
            f"{clock} MHz" if clock else "",
            formatting.date(side.created_ns),
        )
    )


def figure_facts(comparison: Comparison) -> tuple[Fact, ...]:
    """What else the two steps are known by, as far as both are: before and after."""
    base, head = comparison.base, comparison.head
    facts = []
    if base.mfu is not None and head.mfu is not None and base.mfu_peak == head.mfu_peak:
        note = f"of {formatting.printable(base.mfu_peak)}"
        facts.append(
            Fact("MFU", before_after(*map(formatting.percent, (base.mfu, head.mfu))), note)
        )
    for label, before, after, text in (
        ("Tokens", base.tokens_per_s, head.tokens_per_s, _tokens),
        ("Memory", base.peak_memory_bytes, head.peak_memory_bytes, _peak),
    ):
        if before is not None and after is not None:
            change = signed_percent(after / before - 1 if before else None)
            facts.append(Fact(label, before_after(text(before), text(after)), change))
    return tuple(facts)


def _tokens(per_s: float) -> str:
    return formatting.quantity(per_s, "tokens/s")


def _peak(count: float) -> str:
    return f"peak {formatting.byte_count(count)}"


def parts(step: StepChange) -> tuple[Part, ...]:
    """The parts of the step's change that are known and not 0; they add up to it."""
    found = [
        Part("matched", "kernels that both have", step.matched_ns),
        Part("new", "new kernels", step.new_ns),
        Part("removed", "kernels that are gone", step.removed_ns),
    ]
    if step.communication_ns is not None:
        found.append(Part("communication", "exposed communication", step.communication_ns))
    if step.copies_ns is not None:
        found.append(Part("copies", "exposed copies", step.copies_ns))
    if step.idle_ns is not None:
        found.append(Part("waiting", step.idle_name, step.idle_ns, _causes(step)))
    share = step.unexplained_share
    note = "" if share is None else f"{formatting.percent(share)} of the change"
    if share is not None and share > _MUCH_UNEXPLAINED:
        note += ": not explained by the kernels, such as streams that overlap differently"
    rest = Part("unmodelled", "unexplained", step.unexplained_ns, note)
    return (*(part for part in found if part.change_ns), rest)


def _causes(step: StepChange) -> str:
    """The causes of waiting that changed most, where there are several."""
    if len(step.waiting) < _SEVERAL:
        return ""
    return ", ".join(
        f"{bottleneck_class(one.kind).part} {delta(one.change_ns)}"
        for one in step.waiting[:_MOST_CAUSES]
    )


def warnings(comparison: Comparison) -> tuple[str, ...]:
    """Sentences that limit what the comparison says, the gravest first."""
    found = []
    if comparison.strict_differences:
        found.append(
            "The two ran in environments whose times cannot be compared: "
            + "; ".join(dict.fromkeys(comparison.strict_differences))
        )
    found += [caution(comparison), *comparison.notes]
    return tuple(formatting.printable(sentence(text)) for text in found if text)


def environment_facts(comparison: Comparison) -> tuple[Fact, ...]:
    """What else differs between the two."""
    return tuple(
        Fact("Also differs" if index == 0 else "", formatting.printable(text))
        for index, text in enumerate(comparison.advisory_differences)
    )


def renamed_rows(comparison: Comparison) -> tuple[ChangeRow, ...]:
    """Kernels whose own name is another now; other template numbers alone are not worth a line."""
    return tuple(row for row in change_rows(comparison.renamed) if " → " in row.title)


def change_rows(changes: tuple[KernelChange, ...]) -> tuple[ChangeRow, ...]:
    """`changes` in words."""
    return tuple(_row(change) for change in changes)


def _row(change: KernelChange) -> ChangeRow:
    side = change.side
    names = [_side_name(one, change.match) for one in (change.base, change.head) if one is not None]
    badge = {"new": "new", "removed": "gone", "fused": "fused"}.get(change.match, "")
    if change.renamed and not badge:
        badge = "perhaps renamed" if change.match == "time" else "renamed"
    ops = [one.op for one in (change.base, change.head) if one is not None and one.op]
    op = max(ops, key=lambda text: text.count("::"), default="")
    shapes = formatting.printable(readable_shapes(side.shapes, side.op))
    return ChangeRow(
        # Two full names may share their own part: then there is only one to show.
        title=" → ".join(dict.fromkeys(names)),
        subtitle=formatting.printable(joined((op, side.phase, shapes))),
        op=formatting.printable(op),
        shapes=shapes,
        badge=badge,
        match=HOW[change.match],
        change=change,
        calls=_arrow(change, lambda one: formatting.count(round(one.calls, 2))),
        time=_arrow(change, lambda one: formatting.duration(one.device_ns)),
        split=_split(change),
        roofline=_roofline(change),
    )


def _side_name(side: KernelSide, match: Match) -> str:
    if match == "fused" and side.others and side.op:
        # Kernels of several operators are best known by those.
        return formatting.printable(side.op)
    name = formatting.printable(formatting.kernel_name(side.name))
    return f"{name} and {len(side.others)} more" if side.others else name


def _arrow(change: KernelChange, text: Callable[[KernelSide], str]) -> str:
    """ "before → after", once where both are the same, "-" for what is not there."""
    before, after = (
        formatting.UNKNOWN if one is None else text(one) for one in (change.base, change.head)
    )
    return before_after(before, after)


def _split(change: KernelChange) -> str:
    if change.base is None or change.head is None or change.base.calls == change.head.calls:
        return ""
    return f"count {delta(change.by_count_ns)}, mean {delta(change.by_mean_ns)}"


def _roofline(change: KernelChange) -> str:
    """Class and share of the roof, of the side that there is or before and after."""
    if change.base is None or change.head is None:
        side = change.side
        known = side.roof_fraction is not None
        return (
            f"{side.bottleneck}, {formatting.percent(side.roof_fraction)}"
            if known
            else (side.bottleneck)
        )
    classes = _arrow(change, lambda one: one.bottleneck)
    shares = _arrow(change, lambda one: formatting.percent(one.roof_fraction))
    return classes if shares == formatting.UNKNOWN else f"{classes}, {shares}"
