"""The time of each step over a run, its outliers, and the device's clock below it, as an SVG."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gpuprof.reports.formatting import count, duration, step_duration
from gpuprof.reports.html.scale import Scale
from gpuprof.roofline.slow_step_figures import RunPoint, SlowStep, SlowSteps

WIDTH: Final = 760
_LEFT, _RIGHT = 74, WIDTH - 10
_TOP, _BOTTOM = 14, 190
_CLOCK_TOP, _CLOCK_BOTTOM = 222, 268
# From this ratio of the longest to the shortest on the axis is logarithmic.
_WIDE_RANGE: Final = 4
_FEW_DECADES: Final = 4


@dataclass(frozen=True)
class PlotMark:
    """A dot with its words, or a tick with its label."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class LongestBar:
    """From the mean to the longest of some steps."""

    x: float
    low_y: float
    high_y: float
    text: str


@dataclass(frozen=True)
class ClockBand:
    """The device's clock: points of a polyline, its ends on the axis, where it was slowed down."""

    line: str
    ticks: tuple[PlotMark, ...]
    slowed: tuple[PlotMark, ...]


@dataclass(frozen=True)
class RunPlotLayout:
    """Where everything goes, in the units of the SVG's view box."""

    width: int
    height: int
    left: int
    right: int
    bottom: int
    # Points of a polyline.
    means: str
    bars: tuple[LongestBar, ...]
    outliers: tuple[PlotMark, ...]
    ticks: tuple[PlotMark, ...]
    first: str
    last: str
    limit_y: float
    logarithmic: bool
    # None where no clock was sampled.
    clock: ClockBand | None


def make_run_plot(slow: SlowSteps) -> RunPlotLayout:
    """The plot of `slow.time_line`, which is not empty."""
    points = slow.time_line
    first, end = points[0].index, points[-1].index + points[-1].steps

    def x(index: float) -> float:
        return round(_LEFT + (index - first) / (end - first) * (_RIGHT - _LEFT), 1)

    lengths = _LengthAxis.of(slow)
    placed = [(x(point.index + point.steps / 2), point) for point in points]
    clock = _clock(placed)
    return RunPlotLayout(
        width=WIDTH,
        height=_BOTTOM + 26 if clock is None else _CLOCK_BOTTOM + 10,
        left=_LEFT,
        right=_RIGHT,
        bottom=_BOTTOM,
        means=_line((middle, lengths.y(point.mean_ns)) for middle, point in placed),
        bars=tuple(
            LongestBar(middle, lengths.y(point.mean_ns), lengths.y(point.longest_ns), _words(point))
            for middle, point in placed
        ),
        outliers=tuple(
            PlotMark(x(step.index + 0.5), lengths.y(step.length_ns), _cause(step))
            for step in slow.slowest
            if step.length_ns > slow.limit_ns
        ),
        ticks=tuple(PlotMark(_LEFT - 8, lengths.y(ns), duration(ns)) for ns in lengths.ticks()),
        first=f"step {count(first)}",
        last=count(end - 1),
        limit_y=lengths.y(slow.limit_ns),
        logarithmic=lengths.logarithmic,
        clock=clock,
    )


@dataclass(frozen=True)
class _LengthAxis:
    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, slow: SlowSteps) -> "_LengthAxis":
        shortest = max(1, min(point.mean_ns for point in slow.time_line))
        high = max(slow.longest_ns, slow.limit_ns, 2)
        if high > _WIDE_RANGE * shortest:
            return cls(shortest, high, logarithmic=True)
        return cls(0, high, logarithmic=False)

    def y(self, nanoseconds: float) -> float:
        """Upwards from the bottom of the plot."""
        share = (nanoseconds - self.low) / (self.high - self.low)
        if self.logarithmic:
            share = math.log(max(nanoseconds, self.low) / self.low) / math.log(self.high / self.low)
        return round(_BOTTOM - share * (_BOTTOM - _TOP), 1)

    def ticks(self) -> Sequence[float]:
        """Round lengths on the axis: at most about six."""
        if not self.logarithmic:
            return [ns for ns in Scale(self.low, self.high).ticks() if ns > 0]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1, 2, 5) if len(decades) <= _FEW_DECADES else (1,)
        values = [factor * 10.0**decade for decade in decades for factor in factors]
        return [value for value in values if self.low <= value <= self.high]


def _clock(placed: Sequence[tuple[float, RunPoint]]) -> ClockBand | None:
    """The SM clock of the points that have one; None where fewer than two do."""
    known = [(x, point, point.sm_clock_mhz) for x, point in placed if point.sm_clock_mhz]
    if len(known) < 2:
        return None
    low, high = min(mhz for *_, mhz in known), max(mhz for *_, mhz in known)

    def y(mhz: float) -> float:
        share = (mhz - low) / (high - low) if high > low else 0.5
        return round(_CLOCK_BOTTOM - share * (_CLOCK_BOTTOM - _CLOCK_TOP), 1)

    return ClockBand(
        line=_line((x, y(mhz)) for x, _, mhz in known),
        ticks=tuple(PlotMark(_LEFT - 8, y(mhz), f"{mhz} MHz") for mhz in sorted({low, high})),
        slowed=tuple(
            PlotMark(x, y(mhz), f"{_steps_of(point)}: {', '.join(point.slowed_by)}")
            for x, point, mhz in known
            if point.slowed_by
        ),
    )


def _line(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def _steps_of(point: RunPoint) -> str:
    if point.steps == 1:
        return f"step {count(point.index)}"
    return f"steps {count(point.index)} to {count(point.index + point.steps - 1)}"


def _words(point: RunPoint) -> str:
    mean = step_duration(point.mean_ns)
    if point.mean_ns == point.longest_ns:
        return f"{_steps_of(point)}: {mean}"
    return f"{_steps_of(point)}: mean {mean}, longest {step_duration(point.longest_ns)}"


def _cause(step: SlowStep) -> str:
    cause = f", {step.differences[0].cause}" if step.differences else ""
    return f"step {count(step.index)}: {step_duration(step.length_ns)}{cause}"
