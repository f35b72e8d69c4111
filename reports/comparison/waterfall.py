"""The change of a step as a waterfall: from the base's step over each part to the head's.

A drawing that needs no script. Each bar begins where the one above ends, so that the last one ends
at the head's step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpuprof.reports import formatting
from gpuprof.reports.comparison.amounts import before_after, delta
from gpuprof.reports.comparison.sentences import parts
from gpuprof.roofline.comparison.result import Comparison

_WIDTH, _NARROW = 900, 380
_ROW, _NARROW_ROW, _BAR, _EDGE = 26, 40, 14, 4
# Room for the labels and for the figures beside the bars of a wide drawing.
_LABELS, _FIGURES = 260, 100
# Where the lowest bar end is so much of the highest one, the axis leaves out what all have.
_ALIKE = 0.7
# About the width of a letter.
_LETTER = 6.8

Direction = Literal["total", "slower", "faster"]


@dataclass(frozen=True)
class WaterfallBar:
    """One bar in the units of the drawing."""

    label: str
    # The change, or the length of a step.
    text: str
    # What stands in a tooltip: the part before and after.
    note: str
    kind: Direction
    x: float
    y: float
    width: float
    height: float
    label_x: float
    label_y: float
    text_x: float
    text_y: float
    text_anchor: str
    # Where the next bar begins.
    end: float


@dataclass(frozen=True)
class Waterfall:
    """The bars, and whether the axis begins at a time other than 0."""

    width: int
    height: int
    bars: tuple[WaterfallBar, ...]
    cut: bool


@dataclass(frozen=True)
class _Part:
    label: str
    change_ns: float
    note: str = ""


def waterfalls(comparison: Comparison) -> tuple[Waterfall, ...]:
    """The drawing for a wide screen and for a phone; () where no step is compared.

    By kind of time, or where that is not known by the kernels that came, went and changed.
    """
    step = comparison.step
    if step is None:
        return ()
    found = [
        _Part(
            kind.part,
            kind.change_ns,
            before_after(*map(formatting.duration, (kind.base_ns, kind.head_ns))),
        )
        for kind in comparison.kinds
        if kind.change_ns
    ] or [_Part(part.label, part.change_ns, part.note) for part in parts(step) if part.change_ns]
    lengths = step.lengths
    return tuple(
        _draw(found, lengths.base_ns, lengths.head_ns, width=width) for width in (_WIDTH, _NARROW)
    )


def _draw(found: Sequence[_Part], base_ns: int, head_ns: int, *, width: int) -> Waterfall:
    reached = [float(base_ns)]
    for part in found:
        reached.append(reached[-1] + part.change_ns)
    low, high = min(0.0, *reached), max(reached)
    cut = min(reached) > _ALIKE * high
    if cut:
        low = min(reached) - 0.5 * (high - min(reached))
    narrow = width == _NARROW
    left = 0 if narrow else _LABELS
    span = width - left - (0 if narrow else _FIGURES) - 2 * _EDGE
    per_ns = span / ((high - low) or 1.0)
    row = _NARROW_ROW if narrow else _ROW

    def bar(
        index: int, label: str, text: str, note: str, start: float, end: float, kind: Direction
    ) -> WaterfallBar:
        x0, x1 = sorted(left + _EDGE + (at - low) * per_ns for at in (start, end))
        y = index * row + (row - _BAR if narrow else (row - _BAR) / 2)
        # Beside the bar, on its free side where the right one is the drawing's end.
        text_x, anchor = x1 + 6, "start"
        if narrow:
            text_x, anchor = width - _EDGE, "end"
        elif x1 + 6 + len(text) * _LETTER > width:
            text_x, anchor = x0 - 6, "end"
        return WaterfallBar(
            label=label,
            text=text,
            note=note,
            kind=kind,
            x=round(x0, 2),
            y=y,
            width=round(max(x1 - x0, 1.0), 2),
            height=_BAR,
            label_x=_EDGE if narrow else left - 8,
            label_y=y - 6 if narrow else y + _BAR - 3,
            text_x=round(text_x, 2),
            text_y=y - 6 if narrow else y + _BAR - 3,
            text_anchor=anchor,
            end=round(left + _EDGE + (end - low) * per_ns, 2),
        )

    bars = [bar(0, "base", formatting.duration(base_ns, 4), "", low, base_ns, "total")]
    for index, (part, start) in enumerate(zip(found, reached, strict=False), start=1):
        kind: Direction = "slower" if part.change_ns > 0 else "faster"
        end = start + part.change_ns
        bars.append(bar(index, part.label, delta(part.change_ns), part.note, start, end, kind))
    last = len(bars)
    bars.append(bar(last, "head", formatting.duration(head_ns, 4), "", low, head_ns, "total"))
    return Waterfall(width, len(bars) * row + _EDGE, tuple(bars), cut)
