"""The time line as a drawing that needs no script: a few hundred bars of the typical step."""

from dataclasses import dataclass
from typing import Final

from gpuprof.reports.blocks import TimelinePlot
from gpuprof.reports.formatting import duration, step_duration
from gpuprof.reports.html.plot_area import Tick
from gpuprof.reports.html.scale import Scale
from gpuprof.reports.html.timeline_data import look_of
from gpuprof.reports.timeline_words import (
    counted_name,
    group_name,
    lane_name,
    number_of,
    piece_name,
    step_name,
)
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.timeline_figures import Timeline, TimelineActivity, TimelineLane, TimelineStep

WIDTH: Final = 1000
_LEFT, _RIGHT, _TOP = 170, WIDTH - 8, 10
_LANE, _BAR, _GROUP = 19, 15, 20
_MOST_BARS: Final = 400
_MOST_LANES: Final = 24


@dataclass(frozen=True)
class TimelineBar:
    """Pieces of one lane that stand close together, with their words."""

    x: float
    y: float
    width: float
    # Of the longest of them; "" has no class.
    look: ClassName
    text: str


@dataclass(frozen=True)
class DrawnName:
    """The name of a lane, or of the thread or device above it."""

    y: float
    text: str
    is_group: bool


@dataclass(frozen=True)
class DrawnActivity:
    """How busy a part of a device was, as the outline of an area."""

    path: str
    text: str


@dataclass(frozen=True)
class TimelineDrawing:
    """Where everything goes, in the units of the SVG's view box."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    bar: int
    caption: str
    names: tuple[DrawnName, ...]
    bars: tuple[TimelineBar, ...]
    activities: tuple[DrawnActivity, ...]
    ticks: tuple[Tick, ...]
    # Where the step begins, behind the launches of its work.
    begin_x: float
    # Classes of the bars, for the legend.
    looks: tuple[ClassName, ...]


def draw_timeline(block: TimelinePlot, kernels: tuple[RooflinePoint, ...]) -> TimelineDrawing:
    """The first step of the time line of `block`; `kernels` are those of the analysis."""
    step = block.timeline.steps[0]
    lanes = step.lanes[:_MOST_LANES]
    scale = (_RIGHT - _LEFT) / (step.lead_ns + step.length_ns or 1)
    least = 1.0
    while True:
        runs = [_runs(lane, step, scale, least) for lane in lanes]
        if sum(map(len, runs)) <= _MOST_BARS or least > WIDTH:
            break
        least *= 1.5
    names: list[DrawnName] = []
    bars: list[TimelineBar] = []
    y, group = float(_TOP), ""
    for lane, own in zip(lanes, runs, strict=True):
        if (above := group_name(lane, block.timeline, block.rank, on_cpu=block.on_cpu)) != group:
            group = above
            names.append(DrawnName(y + _GROUP - 6, group, is_group=True))
            y += _GROUP
        names.append(DrawnName(y + 12, lane_name(lane, on_cpu=block.on_cpu), is_group=False))
        bars += [_bar(lane, run, y, scale, step, block.timeline, kernels) for run in own]
        y += _LANE
    areas: list[DrawnActivity] = []
    for each in step.activities:
        if (above := counted_name(each)) != group:
            group = above
            names.append(DrawnName(y + _GROUP - 6, group, is_group=True))
            y += _GROUP
        names.append(DrawnName(y + 12, each.part, is_group=False))
        areas.append(_area(each, y, scale, step))
        y += _LANE
    axis = Scale(-step.lead_ns / 1e6, step.length_ns / 1e6 or 1e-6)
    looks = dict.fromkeys(bar.look for bar in bars if bar.look)
    return TimelineDrawing(
        width=WIDTH,
        height=round(y) + 30,
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=round(y) + 4,
        bar=_BAR,
        caption=f"Time line of {step_name(step)}, {step_duration(step.length_ns)}",
        names=tuple(names),
        bars=tuple(bars),
        activities=tuple(areas),
        ticks=tuple(
            Tick(_LEFT + axis.at(at) / 100 * (_RIGHT - _LEFT), duration(at * 1e6) if at else "0")
            for at in axis.ticks()
        ),
        begin_x=round(_LEFT + step.lead_ns * scale, 1),
        looks=tuple(looks),
    )


def _area(activity: TimelineActivity, y: float, scale: float, step: TimelineStep) -> DrawnActivity:
    bottom = y + _BAR
    path: list[str] = []
    columns = zip(activity.starts_ns, activity.lengths_ns, activity.percents, strict=True)
    for start, length, percent in columns:
        begin, end = max(start, -step.lead_ns), min(start + length, step.length_ns)
        if end > begin and percent:
            left, right = (_LEFT + (at + step.lead_ns) * scale for at in (begin, end))
            height = _BAR * min(percent, 100.0) / 100
            path.append(f"M{left:.1f} {bottom:.0f}v{-height:.1f}H{right:.1f}V{bottom:.0f}Z")
    mean = f"{activity.part} active in {activity.mean_percent:.3g}% of the cycles in the mean"
    return DrawnActivity("".join(path), mean)


# First and last piece of a bar, and its ends in ns after the step's start.
_Run = tuple[int, int, int, int]


def _runs(lane: TimelineLane, step: TimelineStep, scale: float, least: float) -> list[_Run]:
    """Pieces of `lane` inside the step, those together that are less than `least` units apart."""
    runs: list[_Run] = []
    for number, (start, length) in enumerate(zip(lane.starts_ns, lane.lengths_ns, strict=True)):
        begin = max(start, -step.lead_ns)
        end = min(start + length, step.length_ns)
        if end < begin:
            continue
        if (
            runs
            and max(runs[-1][3] - runs[-1][2], end - begin, begin - runs[-1][3]) * scale < least
        ):
            runs[-1] = (runs[-1][0], number, runs[-1][2], end)
        else:
            runs.append((number, number, begin, end))
    return runs


def _length(run: _Run) -> int:
    return run[3] - run[2]


def _bar(
    lane: TimelineLane,
    run: _Run,
    y: float,
    scale: float,
    step: TimelineStep,
    timeline: Timeline,
    kernels: tuple[RooflinePoint, ...],
) -> TimelineBar:
    first, last, begin, end = run
    longest = max(range(first, last + 1), key=lane.lengths_ns.__getitem__)
    label = timeline.labels[lane.labels[longest]]
    count = sum(lane.counts[first : last + 1]) if lane.counts else last + 1 - first
    name = piece_name(label) if count == 1 else f"{number_of(label, count)}, {piece_name(label)}"
    look = look_of(label, None if label.point is None else kernels[label.point])
    return TimelineBar(
        x=round(_LEFT + (begin + step.lead_ns) * scale, 1),
        y=y,
        width=round(max((end - begin) * scale, 0.6), 1),
        look=look,
        text=", ".join(part for part in (name, duration(end - begin), look) if part),
    )
