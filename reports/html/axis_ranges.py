"""The axis ranges of a roofline: where the time is, not as far as the smallest point reaches.

One kernel of a microsecond can lie six decades below the rest. The points that together hold
nearly all of the device time are always in the range, as are the roofs; the others are as long as
they stretch an axis by little. Those outside are counted, and the page can show them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuprof.roofline.machine.ceilings import Ceiling

# The share of a level's device time whose points are always in the range.
_NEARLY_ALL = 0.99
# By how much of its length the other points may stretch an axis, at each end.
_STRETCH = 0.25
# Room around what is drawn, in decades.
MARGIN = 0.35

Range = tuple[float, float]


@dataclass(frozen=True)
class AxisPlace:
    """A point's exponents, base 10, and its share of its level's device time."""

    x: float
    y: float
    share: float

    def is_in(self, ranges: "Ranges") -> bool:
        """True where it is inside both axes."""
        return all(
            low <= value <= high
            for value, (low, high) in zip((self.x, self.y), (ranges.x, ranges.y), strict=True)
        )


@dataclass(frozen=True)
class Ranges:
    """Both axes, as exponents, base 10."""

    x: Range
    y: Range


def place(flop_per_byte: float, flops_per_s: float, share: float) -> AxisPlace:
    """Where a point of this intensity and rate lies."""
    return AxisPlace(math.log10(flop_per_byte), math.log10(flops_per_s), share)


def ranges_where_the_time_is(
    levels: Iterable[Sequence[AxisPlace]], ceilings: Sequence[Ceiling]
) -> Ranges:
    """Ranges that hold the roofs, the ridges and nearly all time of every level."""
    levels = tuple(levels)
    held = _Hull()
    held.add_roofs(ceilings)
    for points in levels:
        for point in _nearly_all(points):
            held.add(point.x, point.y)
    everything = [point for points in levels for point in points]
    return Ranges(
        _stretched(held.x, [point.x for point in everything]),
        _stretched(held.y, [point.y for point in everything]),
    )


def whole_ranges(levels: Iterable[Sequence[AxisPlace]], ceilings: Sequence[Ceiling]) -> Ranges:
    """Ranges that hold every point too."""
    held = _Hull()
    held.add_roofs(ceilings)
    for points in levels:
        for point in points:
            held.add(point.x, point.y)
    return Ranges(_with_margin(held.x), _with_margin(held.y))


class _Hull:
    """The least and the largest exponent of all that was added."""

    def __init__(self) -> None:
        self.x = self.y = (math.inf, -math.inf)

    def add(self, x: float, y: float) -> None:
        self.x = (min(self.x[0], x), max(self.x[1], x))
        self.y = (min(self.y[0], y), max(self.y[1], y))

    def add_roofs(self, ceilings: Sequence[Ceiling]) -> None:
        """The compute roofs' heights, and the ridges with room for the flat lines behind them."""
        compute = [ceiling.rate for ceiling in ceilings if ceiling.kind == "compute"]
        memory = [ceiling.rate for ceiling in ceilings if ceiling.kind == "memory"]
        if not compute:
            return
        low, high = math.log10(min(compute)), math.log10(max(compute))
        self.y = (min(self.y[0], low), max(self.y[1], high))
        if memory:
            self.x = (
                min(self.x[0], low - math.log10(max(memory))),
                max(self.x[1], high - math.log10(min(memory)) + 2 * MARGIN),
            )


def _nearly_all(points: Sequence[AxisPlace]) -> list[AxisPlace]:
    """The largest of `points` that together hold `_NEARLY_ALL` of their time."""
    enough = _NEARLY_ALL * sum(point.share for point in points)
    found: list[AxisPlace] = []
    reached = 0.0
    for point in sorted(points, key=lambda point: -point.share):
        found.append(point)
        reached += point.share
        if reached >= enough:
            break
    return found


def _stretched(held: Range, values: Sequence[float]) -> Range:
    low, high = held
    room = max(_STRETCH * (high - low), MARGIN)
    near = [value for value in values if low - room <= value <= high + room]
    return _with_margin((min(low, *near), max(high, *near)))


def _with_margin(held: Range) -> Range:
    return (round(held[0] - MARGIN, 4), round(held[1] + MARGIN, 4))
