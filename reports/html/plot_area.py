"""What drawings of a roofline without script share: axes, and ceilings with their labels."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuprof.reports.formatting import quantity
from gpuprof.reports.html.ceiling_lines import CeilingLine

_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 12, 46
# Drawings of less width have room for few labels.
_NARROW = 600
# Between the baselines of two labels, and about the width of a letter.
_LINE_HEIGHT = 16
_LETTER = 6.6
# Where along a slanted line its label may stand, the best first.
_LABEL_PLACES = (0.62, 0.75, 0.48, 0.35, 0.2)


@dataclass(frozen=True)
class Tick:
    """A line of the grid: its place on its axis and its words."""

    at: float
    text: str


@dataclass(frozen=True)
class PictureLine:
    """A ceiling, with its label's place and angle; `label` is "" where another line has it."""

    line: CeilingLine
    x0: float
    y0: float
    x1: float
    y1: float
    label: str
    label_x: float
    label_y: float
    # In degrees, clockwise.
    angle: float
    anchor: str


@dataclass(frozen=True)
class Axis:
    """A range of exponents drawn from `start` to `end`."""

    range: tuple[float, float]
    start: float
    end: float

    @property
    def per_decade(self) -> float:
        return (self.end - self.start) / (self.range[1] - self.range[0])

    def at(self, value: float) -> float:
        return self.start + (math.log10(value) - self.range[0]) * self.per_decade

    def holds(self, value: float) -> bool:
        return self.range[0] <= math.log10(value) <= self.range[1]

    def ticks(self, room: float, text: Callable[[float], str]) -> tuple[Tick, ...]:
        """Decades, at least `room` apart."""
        step = max(1, math.ceil(room / abs(self.per_decade)))
        exponents = range(math.ceil(self.range[0]), math.floor(self.range[1]) + 1, step)
        return tuple(Tick(round(self.at(10.0**n), 1), text(10.0**n)) for n in exponents)


@dataclass(frozen=True)
class PlotArea:
    """The axes of one drawing, in pixels."""

    width: int
    height: int
    x: Axis
    y: Axis

    @property
    def left(self) -> int:
        return _LEFT

    @property
    def right(self) -> int:
        return self.width - _RIGHT

    @property
    def top(self) -> int:
        return _TOP

    @property
    def bottom(self) -> int:
        return self.height - _BOTTOM

    @property
    def x_ticks(self) -> tuple[Tick, ...]:
        """FLOP per byte."""
        return self.x.ticks(44, lambda value: f"{value:g}")

    @property
    def y_ticks(self) -> tuple[Tick, ...]:
        """FLOP/s."""
        return self.y.ticks(24, lambda value: quantity(value, "", digits=1).strip())

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies inside both axes."""
        return self.x.holds(x) and self.y.holds(y)


def plot_area(
    x_range: tuple[float, float], y_range: tuple[float, float], width: int, height: int
) -> PlotArea:
    """An area of `width` by `height` pixels whose axes have these exponents, base 10."""
    return PlotArea(
        width,
        height,
        Axis(x_range, _LEFT, width - _RIGHT),
        Axis(y_range, height - _BOTTOM, _TOP),
    )


def draw_ceilings(lines: Sequence[CeilingLine], area: PlotArea) -> tuple[PictureLine, ...]:
    """The ceilings inside the area: memory first, then compute from the highest down."""
    narrow = area.width < _NARROW
    flat = _flat(lines, area.x, area.y, narrow=narrow)
    return (*_slanted(lines, area.x, area.y, flat, narrow=narrow), *flat)


def _slanted(
    lines: Sequence[CeilingLine],
    x: Axis,
    y: Axis,
    flat: Sequence[PictureLine],
    *,
    narrow: bool,
) -> list[PictureLine]:
    """The memory roofs inside the axes, each label along its line where no flat roof's stands.

    A narrow drawing labels only the roof of the percentages.
    """
    angle = math.atan2(abs(y.per_decade), x.per_decade)
    drawn: list[PictureLine] = []
    for line in lines:
        # On logarithmic axes: y = x + rise.
        rise = math.log10(line.y0 / line.x0)
        start = max(x.range[0], y.range[0] - rise)
        end = min(x.range[1], y.range[1] - rise, math.log10(line.x1))
        if line.kind != "memory" or start >= end:
            continue
        # The roof's label stands above its line, another's below.
        away = -6 if line.is_roof else 16
        text = _label(line) if line.is_roof or not narrow else ""
        places = [
            (
                x.at(10.0**middle) + away * math.sin(angle),
                y.at(10.0 ** (middle + rise)) + away * math.cos(angle),
            )
            for middle in (start + share * (end - start) for share in _LABEL_PLACES)
        ]
        free = (
            at
            for at in places
            if not _meets(at, len(text), angle, flat) and _is_apart(at, len(text), angle, drawn)
        )
        label_x, label_y = next(free, places[0])
        drawn.append(
            PictureLine(
                line,
                x0=round(x.at(10.0**start), 1),
                y0=round(y.at(10.0 ** (start + rise)), 1),
                x1=round(x.at(10.0**end), 1),
                y1=round(y.at(10.0 ** (end + rise)), 1),
                label=text,
                label_x=round(label_x, 1),
                label_y=round(label_y, 1),
                angle=round(-math.degrees(angle), 1),
                anchor="middle",
            )
        )
    return drawn


def _flat(lines: Sequence[CeilingLine], x: Axis, y: Axis, *, narrow: bool) -> list[PictureLine]:
    """The compute roofs inside the axes, from the highest down, each label above its right end.

    A narrow drawing leaves out labels that would stand away from their line.
    """
    drawn = []
    lowest_label = -math.inf
    for line in sorted(lines, key=lambda line: -line.y0):
        if line.kind != "compute" or not y.holds(line.y0) or math.log10(line.x0) > x.range[1]:
            continue
        height = round(y.at(line.y0), 1)
        label_y = max(height - 5, lowest_label + _LINE_HEIGHT)
        named = line.is_roof or not narrow or label_y == height - 5
        if named:
            lowest_label = label_y
        start = max(x.at(line.x0), x.start)
        drawn.append(
            PictureLine(
                line,
                x0=round(start, 1),
                y0=height,
                x1=x.end,
                y1=height,
                label=_label(line) if named else "",
                label_x=x.end - 2,
                label_y=label_y,
                angle=0,
                anchor="end",
            )
        )
    return drawn


def _meets(
    centre: tuple[float, float], letters: int, angle: float, flat: Sequence[PictureLine]
) -> bool:
    """True where a slanted text of `letters` around `centre` would touch a flat roof's label."""
    half = letters * _LETTER / 2
    along = (half * share for share in (-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1))
    text = [(centre[0] + a * math.cos(angle), centre[1] - a * math.sin(angle)) for a in along]
    return any(
        one.label_x - len(one.label) * _LETTER - _LINE_HEIGHT / 2 <= at_x <= one.label_x
        and one.label_y - 1.5 * _LINE_HEIGHT <= at_y <= one.label_y + _LINE_HEIGHT
        for one in flat
        for at_x, at_y in text
    )


def _is_apart(
    centre: tuple[float, float], letters: int, angle: float, slanted: Sequence[PictureLine]
) -> bool:
    """False where a text of `letters` around `centre` would touch one that is as slanted."""
    for one in slanted:
        right, down = one.label_x - centre[0], one.label_y - centre[1]
        along = abs(right * math.cos(angle) - down * math.sin(angle))
        across = abs(right * math.sin(angle) + down * math.cos(angle))
        if across < _LINE_HEIGHT and along < (letters + len(one.label) + 2) * _LETTER / 2:
            return not one.label
    return True


def _label(line: CeilingLine) -> str:
    measured = ", measured" if line.source == "measured" else ""
    return f"{line.name} {line.rate}{measured}" if line.name else ""
