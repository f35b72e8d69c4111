"""Plots of functions over sizes as drawings that need no script: time, FLOP/s, bytes/s."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpuprof.reports import formatting
from gpuprof.roofline.bench.sizes import SizedTime, SizesReport

WIDTH: Final = 760
HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 112, 16, 12, 46
# So many looks are told apart; further functions repeat them.
LOOKS: Final = 6
# Between two labels of an axis, in pixels.
_ROOM_X, _ROOM_Y = 56, 26
_MARGIN: Final = 0.05


@dataclass(frozen=True)
class PlotTick:
    """A line of the grid and its words."""

    at: float
    text: str


@dataclass(frozen=True)
class PlotDot:
    """One median, with its interval, and its words."""

    x: float
    y: float
    low_y: float
    high_y: float
    text: str


@dataclass(frozen=True)
class PlotLine:
    """One function; `look` is the number of its colour and mark."""

    name: str
    look: int
    # Of a polyline; sizes without a figure interrupt it.
    pieces: tuple[str, ...]
    dots: tuple[PlotDot, ...]


@dataclass(frozen=True)
class SizesPlot:
    """One plot, in the units of its view box."""

    title: str
    key: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_ticks: tuple[PlotTick, ...]
    y_ticks: tuple[PlotTick, ...]
    lines: tuple[PlotLine, ...]


@dataclass(frozen=True)
class _Quantity:
    """What is plotted: the least, the middle and the most of a time, None where it is unknown."""

    title: str
    key: str
    of: Callable[[SizedTime], tuple[float, float, float] | None]
    unit: str


def draw_sizes(report: SizesReport) -> tuple[SizesPlot, ...]:
    """The plots of those quantities that are known, time first; none where nothing was timed."""
    return tuple(
        _plot(report, quantity)
        for quantity in _QUANTITIES
        if any(quantity.of(one) for one in report.times)
    )


def _times(one: SizedTime) -> tuple[float, float, float] | None:
    if not one.median_ns:
        return None
    low, high = one.lower_ns or one.median_ns, one.upper_ns or one.median_ns
    return low, one.median_ns, high


def _rates(amount: int | None, one: SizedTime) -> tuple[float, float, float] | None:
    times = _times(one)
    if not amount or times is None:
        return None
    low, middle, high = (amount / time * 1e9 for time in reversed(times))
    return low, middle, high


_QUANTITIES: Final = (
    _Quantity("Time of a call", "time", _times, ""),
    _Quantity("FLOP/s", "flops", lambda one: _rates(one.cost.flops, one), "FLOP/s"),
    _Quantity("Bytes/s", "bytes", lambda one: _rates(one.cost.bytes_moved, one), "B/s"),
)


def _words(value: float, unit: str, digits: int) -> str:
    """A time where there is no `unit`, else a rate."""
    if not unit:
        return formatting.duration(value, digits)
    return formatting.quantity(value, unit, digits)


def _plot(report: SizesReport, quantity: _Quantity) -> SizesPlot:
    found = {id(one): quantity.of(one) for one in report.times}
    values = [value for each in found.values() if each is not None for value in each]
    y = _log_axis(min(values), max(values), HEIGHT - _BOTTOM, _TOP)
    sizes = list({one.size: one.number for one in report.times}.items())
    x = _size_axis([number for _, number in sizes])
    places = {size: x(index, number) for index, (size, number) in enumerate(sizes)}
    lines = []
    for index, name in enumerate(report.functions):
        pieces: list[list[PlotDot]] = [[]]
        for one in report.of(name):
            figure = found[id(one)]
            if figure is None:
                pieces.append([])
                continue
            low, middle, high = figure
            words = f"{name} at {one.size}: {_words(middle, quantity.unit, 4)}"
            pieces[-1].append(PlotDot(places[one.size], y.at(middle), y.at(low), y.at(high), words))
        lines.append(
            PlotLine(
                name,
                index % LOOKS,
                tuple(
                    " ".join(f"{dot.x:g},{dot.y:g}" for dot in piece)
                    for piece in pieces
                    if len(piece) > 1
                ),
                tuple(dot for piece in pieces for dot in piece),
            )
        )
    return SizesPlot(
        title=quantity.title,
        key=quantity.key,
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        top=_TOP,
        bottom=HEIGHT - _BOTTOM,
        x_ticks=_apart([PlotTick(places[size], size) for size, _ in sizes]),
        y_ticks=tuple(
            PlotTick(y.at(value), _words(value, quantity.unit, 1)) for value in y.ticks()
        ),
        lines=tuple(lines),
    )


def _size_axis(numbers: Sequence[float | None]) -> Callable[[int, float | None], float]:
    """Where a size stands: by its logarithm where all are positive numbers, else by its turn."""
    left, right = _LEFT + 14, WIDTH - _RIGHT - 14
    known = [number for number in numbers if number is not None and number > 0]
    if len(known) < len(numbers) or len(set(known)) < 2:
        step = (right - left) / max(1, len(numbers) - 1)
        return lambda index, number: round(left + index * step, 1)
    axis = _LogAxis(math.log10(min(known)), math.log10(max(known)), left, right)
    return lambda index, number: axis.at(number or 1.0)


@dataclass(frozen=True)
class _LogAxis:
    """From one exponent to another, in pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> tuple[float, ...]:
        """1, 2 and 5 times powers of ten inside; the powers alone where these are too many."""
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        most = abs(self.end - self.start) / _ROOM_Y
        for steps in ((1, 2, 5), (1, 3), (1,)):
            values = [step * 10.0**decade for decade in decades for step in steps]
            inside = [value for value in values if self.low <= math.log10(value) <= self.high]
            if len(inside) <= most:
                break
        return tuple(inside[:: max(1, math.ceil(len(inside) / most))])


def _log_axis(low: float, high: float, start: float, end: float) -> _LogAxis:
    """An axis that holds both values with room around them, and one tick at least."""
    bottom, top = math.log10(low), math.log10(high)
    room = max(_MARGIN * (top - bottom), (math.log10(2.6) - (top - bottom)) / 2, 0.01)
    return _LogAxis(bottom - room, top + room, start, end)


def _apart(ticks: Sequence[PlotTick]) -> tuple[PlotTick, ...]:
    """Those of `ticks` that have room, from the first on."""
    kept: list[PlotTick] = []
    for tick in sorted(ticks, key=lambda one: one.at):
        if not kept or tick.at - kept[-1].at >= max(_ROOM_X, 8 * len(tick.text)):
            kept.append(tick)
    return tuple(kept)
