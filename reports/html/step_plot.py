"""A small plot of the step times: one dot a step, time to the right, order downwards."""

from dataclasses import dataclass

from gpuprof.reports.formatting import step_duration
from gpuprof.roofline.step_figures import StepTimes

WIDTH = 520
HEIGHT = 132
_LEFT, _RIGHT = 16, WIDTH - 16
_TOP, _BOTTOM = 30, HEIGHT - 30


@dataclass(frozen=True)
class Dot:
    """One step: its centre in the plot's units, and its words."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class StepPlotLayout:
    """Where everything goes, in the units of the SVG's view box."""

    width: int
    height: int
    top: int
    bottom: int
    radius: float
    dots: tuple[Dot, ...]
    median_x: float
    median: str
    # Where the median's label is anchored, so that it stays inside: start, middle or end.
    median_anchor: str
    low: str
    high: str


def make_step_plot(steps: StepTimes) -> StepPlotLayout | None:
    """The plot of `steps.samples_ns`, or None where fewer than two steps were timed."""
    samples = steps.samples_ns
    if len(samples) < 2 or steps.median_ns is None:
        return None
    low, high = min(samples), max(samples)
    # Equal times stand in the middle.
    span = high - low or 1

    def x(nanoseconds: float) -> float:
        share = (nanoseconds - low) / span if high > low else 0.5
        return round(_LEFT + share * (_RIGHT - _LEFT), 1)

    between = (_BOTTOM - _TOP) / (len(samples) - 1)
    dots = tuple(
        Dot(x(ns), round(_TOP + index * between, 1), f"step {index + 1}: {step_duration(ns)}")
        for index, ns in enumerate(samples)
    )
    median_x = min(max(x(steps.median_ns), _LEFT), _RIGHT)
    position = (median_x - _LEFT) / (_RIGHT - _LEFT)
    return StepPlotLayout(
        width=WIDTH,
        height=HEIGHT,
        top=_TOP,
        bottom=_BOTTOM,
        radius=round(min(4.5, max(1.2, between * 0.7)), 1),
        dots=dots,
        median_x=median_x,
        median=f"median {step_duration(steps.median_ns)}",
        median_anchor="start" if position < 0.2 else "end" if position > 0.8 else "middle",
        low=step_duration(low),
        high=step_duration(high),
    )
