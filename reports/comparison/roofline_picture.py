"""The rooflines of two captures in one drawing, with an arrow from where a kernel was to where it
is. It needs no script; a point links to its kernel's row.
"""

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from gpuprof.reports import formatting
from gpuprof.reports.comparison.amounts import delta
from gpuprof.reports.comparison.sentences import change_rows
from gpuprof.reports.html.axis_ranges import AxisPlace, place, ranges_where_the_time_is
from gpuprof.reports.html.ceiling_lines import CeilingLine, bounds, ceiling_lines
from gpuprof.reports.html.plot_area import PictureLine, PlotArea, draw_ceilings, plot_area
from gpuprof.roofline.comparison.kernel_changes import KernelChange, KernelSide
from gpuprof.roofline.comparison.result import ComparedSide, Comparison
from gpuprof.roofline.machine.ceilings import Ceiling

_SIZES = ((900, 470), (380, 380))
# More arrows than these would hide each other. Each has a row in the table.
_MOST_MOVES = 120
_SMALLEST_RADIUS, _LARGEST_RADIUS = 3.5, 20.0
# In pixels: arrows that are shorter say nothing.
_SHORTEST_ARROW = 5.0
_HEAD_LENGTH, _HEAD_WIDTH = 7.0, 3.5
# Of a kernel's time, and of the step: what changed by less did not change.
_SAME_KERNEL, _SAME_STEP = 0.01, 0.0005

_Used = frozenset[tuple[str, str]]
MoveVerdict = Literal["slower", "faster", "same", "new", "gone"]
VERDICTS: dict[MoveVerdict, str] = {
    "slower": "takes longer",
    "faster": "takes less",
    "same": "as long as before",
    "new": "only in the head",
    "gone": "only in the base",
}


@dataclass(frozen=True)
class SideLine:
    """A ceiling, and whose it is: "" where both have it, else "base" or "head"."""

    drawn: PictureLine
    side: str


@dataclass(frozen=True)
class Spot:
    """One end of a move: the centre and radius of its mark, in pixels."""

    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Move:
    """A kernel before and after; a side outside of the axes, or without a place, is None."""

    # In `Comparison.kernels`.
    index: int
    verdict: MoveVerdict
    base: Spot | None
    head: Spot | None
    # From mark to mark, and the arrow's head, as paths; "" where it is too short to draw.
    shaft: str
    point: str
    # What a tooltip says, one line each.
    words: tuple[str, ...]

    @property
    def row(self) -> str:
        """The id of its row in the page."""
        return f"kernel-{self.index}"


@dataclass(frozen=True)
class TwoRooflines:
    """Where everything goes, in the units of the SVG's view box."""

    area: PlotArea
    lines: tuple[SideLine, ...]
    moves: tuple[Move, ...]
    # What is not drawn, and why; "" where all is.
    note: str

    @property
    def verdicts(self) -> tuple[MoveVerdict, ...]:
        """Those that occur, in the order of the legend."""
        found = {move.verdict for move in self.moves}
        return tuple(verdict for verdict in VERDICTS if verdict in found)


def two_rooflines(comparison: Comparison, most_rows: int) -> tuple[TwoRooflines, ...]:
    """The drawing for a wide screen and for a phone; () where no kernel has a place in it.

    Kernels are those of the first `most_rows`, which have a row in the page.
    """
    changes = comparison.kernels[:most_rows]
    placed = [(i, change) for i, change in enumerate(changes) if _has_place(change)]
    if not placed:
        return ()
    placed.sort(key=lambda each: -_longest_ns(each[1]))
    drawn = placed[:_MOST_MOVES]
    sides = (comparison.base, comparison.head)
    used = frozenset((part.kind, part.precision) for side in sides for part in side.flops)
    ceilings = [_met_ceilings(side, used) for side in sides]
    ranges = ranges_where_the_time_is(
        (_places(change.base for _, change in drawn), _places(change.head for _, change in drawn)),
        [ceiling for each in ceilings for ceiling in each],
    )
    lines = _lines(
        *(
            _ceiling_lines(side, each, ranges.x, used)
            for side, each in zip(sides, ceilings, strict=True)
        )
    )
    return tuple(
        _draw(comparison, drawn, lines, plot_area(ranges.x, ranges.y, *size)) for size in _SIZES
    )


def _draw(
    comparison: Comparison,
    changes: Sequence[tuple[int, KernelChange]],
    lines: Sequence[tuple[CeilingLine, str]],
    area: PlotArea,
) -> TwoRooflines:
    sides = {id(line): side for line, side in lines}
    step_ns = 0 if comparison.step is None else comparison.step.lengths.base_ns
    longest_ns = max(_longest_ns(change) for _, change in changes)
    moves = [
        _move(index, change, area, step_ns=step_ns, longest_ns=longest_ns)
        for index, change in changes
    ]
    inside = tuple(move for move in moves if move.base is not None or move.head is not None)
    return TwoRooflines(
        area=area,
        lines=tuple(
            SideLine(one, sides[id(one.line)])
            for one in draw_ceilings([line for line, _ in lines], area)
        ),
        # The largest marks first, so that small ones lie upon them.
        moves=inside,
        note=_note(comparison, {move.index for move in inside}),
    )


def _note(comparison: Comparison, drawn: Container[int]) -> str:
    """How many kernels have no place in the drawing, with their share of device time."""
    absent = [change for i, change in enumerate(comparison.kernels) if i not in drawn]
    if not absent:
        return ""
    all_ns = sum(_longest_ns(change) for change in comparison.kernels)
    share = sum(_longest_ns(change) for change in absent) / all_ns if all_ns else None
    unplaced = sum(not _has_place(change) for change in absent)
    reasons = []
    if unplaced:
        reasons.append(f"{unplaced} without arithmetic, or without a FLOP or byte model")
    if len(absent) > unplaced:
        reasons.append(f"{len(absent) - unplaced} small or outside of the axes")
    return (
        f"Not in this plot: {len(absent)} of {len(comparison.kernels)} kernels "
        f"({formatting.percent(share)} of device time): {', '.join(reasons)}."
    )


def _has_place(change: KernelChange) -> bool:
    return any(side is not None and _place(side) is not None for side in (change.base, change.head))


def _place(side: KernelSide) -> tuple[float, float] | None:
    """Arithmetic intensity and FLOP/s, where both have a logarithm."""
    intensity, rate = side.arithmetic_intensity, side.flops_per_s
    return (intensity, rate) if intensity and rate else None


def _places(sides: Iterable[KernelSide | None]) -> list[AxisPlace]:
    found = [(side, _place(side)) for side in sides if side is not None]
    total_ns = sum(side.device_ns for side, at in found if at is not None) or 1.0
    return [place(*at, side.device_ns / total_ns) for side, at in found if at is not None]


def _longest_ns(change: KernelChange) -> float:
    return max(side.device_ns for side in (change.base, change.head) if side is not None)


def _met_ceilings(side: ComparedSide, used: _Used) -> tuple[Ceiling, ...]:
    """Those that the work of either side can meet, of the source of this side's percentages."""
    return tuple(
        ceiling
        for ceiling in side.ceilings
        if ceiling.source == side.roof_source
        and (ceiling.kind == "memory" or bounds(ceiling, used))
    )


def _ceiling_lines(
    side: ComparedSide, ceilings: Sequence[Ceiling], x_range: tuple[float, float], used: _Used
) -> list[CeilingLine]:
    clock = None if side.state is None else side.state.sm_clock_mhz_median
    lines = ceiling_lines(ceilings, x_range, used, roof_source=side.roof_source, clock_mhz=clock)
    return [line for line in lines if line.used]


def _lines(
    base: Sequence[CeilingLine], head: Sequence[CeilingLine]
) -> list[tuple[CeilingLine, str]]:
    """The ceilings of both sides; what both have stands there once, the others say whose."""
    before, after = ({_same(line): line for line in lines} for lines in (base, head))

    def own(line: CeilingLine, side: str) -> tuple[CeilingLine, str]:
        return msgspec.structs.replace(line, name=f"{side}: {line.name}"), side

    return [
        *((_longer(before[key], line), "") for key, line in after.items() if key in before),
        *(own(line, "base") for key, line in before.items() if key not in after),
        *(own(line, "head") for key, line in after.items() if key not in before),
    ]


def _same(line: CeilingLine) -> tuple[str | int | None, ...]:
    """What two ceilings have in common that are one."""
    return line.kind, line.name, line.rate, line.source, line.clock_mhz


def _longer(one: CeilingLine, other: CeilingLine) -> CeilingLine:
    """One ceiling as far as either side draws it: they end at others, which may differ."""
    first, last = (
        min(one, other, key=lambda line: line.x0),
        max(one, other, key=lambda line: line.x1),
    )
    return msgspec.structs.replace(first, x1=last.x1, y1=last.y1)


def _move(
    index: int, change: KernelChange, area: PlotArea, *, step_ns: int, longest_ns: float
) -> Move:
    def spot(side: KernelSide | None) -> Spot | None:
        at = None if side is None else _place(side)
        if side is None or at is None or not area.holds(*at):
            return None
        span = _LARGEST_RADIUS - _SMALLEST_RADIUS
        radius = _SMALLEST_RADIUS + span * math.sqrt(side.device_ns / longest_ns)
        return Spot(round(area.x.at(at[0]), 1), round(area.y.at(at[1]), 1), round(radius, 1))

    base, head = spot(change.base), spot(change.head)
    shaft, point = _arrow(base, head) if base and head else ("", "")
    return Move(
        index=index,
        verdict=verdict_of(change, step_ns),
        base=base,
        head=head,
        shaft=shaft,
        point=point,
        words=_words(change),
    )


def verdict_of(change: KernelChange, step_ns: float) -> MoveVerdict:
    """Whether a step pays more or less for a kernel, by more than it differs from run to run."""
    if change.base is None:
        return "new"
    if change.head is None:
        return "gone"
    least_ns = max(_SAME_KERNEL * _longest_ns(change), _SAME_STEP * step_ns)
    if abs(change.change_ns) <= least_ns:
        return "same"
    return "slower" if change.change_ns > 0 else "faster"


def _arrow(base: Spot, head: Spot) -> tuple[str, str]:
    """The line from the edge of one mark to the other's centre side, and its head."""
    dx, dy = head.x - base.x, head.y - base.y
    length = math.hypot(dx, dy)
    if length < _SHORTEST_ARROW + base.radius:
        return "", ""
    ux, uy = dx / length, dy / length
    start = base.x + ux * base.radius, base.y + uy * base.radius
    # Up to the centre where the head's mark is so large that nothing would be left.
    gap = head.radius if length > base.radius + head.radius + _HEAD_LENGTH else 0.0
    tip = head.x - ux * gap, head.y - uy * gap
    back = tip[0] - ux * _HEAD_LENGTH, tip[1] - uy * _HEAD_LENGTH
    wings = [
        (back[0] + sign * -uy * _HEAD_WIDTH, back[1] + sign * ux * _HEAD_WIDTH) for sign in (1, -1)
    ]
    shaft = f"M{start[0]:.1f} {start[1]:.1f}L{back[0]:.1f} {back[1]:.1f}"
    corners = "L".join(f"{x:.1f} {y:.1f}" for x, y in (tip, *wings))
    return shaft, f"M{corners}Z"


def _words(change: KernelChange) -> tuple[str, ...]:
    (row,) = change_rows((change,))
    badge = f" ({row.badge})" if row.badge else ""
    first = f"{row.title}{badge}: {delta(change.change_ns)} a step"
    sides = (
        _side_words(name, side)
        for name, side in (("base", change.base), ("head", change.head))
        if side is not None
    )
    return (first, *((row.subtitle,) if row.subtitle else ()), *sides)


def _side_words(name: str, side: KernelSide) -> str:
    roof = (
        ""
        if side.roof_fraction is None
        else f"{formatting.percent(side.roof_fraction)} of {formatting.printable(side.roof)}"
    )
    figures = (
        formatting.flops_rate(side.flops_per_s),
        f"{formatting.intensity(side.arithmetic_intensity)} FLOP/byte",
        formatting.duration(side.device_ns),
        f"{formatting.count(round(side.calls, 2))} calls",
        side.bottleneck,
        roof,
    )
    return f"{name}: {', '.join(part for part in figures if part)}"
