"""The data of the page's time line: the lanes as the analysis has them, with words for pieces."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Final

import msgspec

from gpuprof.reports import formatting
from gpuprof.reports.blocks import TimelinePlot
from gpuprof.reports.html.fill_patterns import pattern_of
from gpuprof.reports.point_groups import grouped
from gpuprof.reports.point_rows import MOST_ROWS
from gpuprof.reports.timeline_words import (
    counted_name,
    detail_text,
    group_name,
    lane_name,
    piece_name,
    step_name,
)
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.classes import COMMUNICATION, COPY, OTHER_RANK, ClassName, classes
from gpuprof.roofline.timeline_figures import TimelineLabel, TimelineLane, TimelineStep

# C++ names have thousands of characters, and there are thousands of labels.
_LONGEST_TEXT: Final = 200


class LabelData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a piece says when it is pointed at; texts are printable."""

    name: str
    kind: str
    # As it was recorded, where that differs, and its beginning where that is long.
    recorded: str = ""
    # The class whose colour it has; "" has none.
    look: ClassName = ""
    operator: str = ""
    # As the program has it, and with repeated blocks taken together as tables have it.
    module: str = ""
    folded: str = ""
    place: str = ""
    detail: str = ""
    phase: str = ""
    # The row of the page that has all its figures.
    row: str = ""
    # The least time that the ceilings allow for one of it, and the label of the one that binds.
    roof_ns: float | None = None
    roof: str = ""


class LaneData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One lane; its columns are those of `TimelineLane`."""

    kind: str
    name: str
    group: str
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    labels: tuple[int, ...]
    counts: tuple[int, ...] = ()
    busy: tuple[int, ...] = ()
    launched: tuple[int | None, ...] = ()
    launched_from: tuple[int | None, ...] = ()
    waited: tuple[int, ...] = ()


class ActivityData(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a part of a device was; its columns are those of `TimelineActivity`."""

    name: str
    group: str
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    percents: tuple[float, ...]


class StepData(msgspec.Struct, frozen=True, kw_only=True):
    """One step; times in ns after its start."""

    name: str
    length: int
    lead: int
    lanes: tuple[LaneData, ...]
    activities: tuple[ActivityData, ...]


class LookData(msgspec.Struct, frozen=True, kw_only=True):
    """How pieces of a class are filled, as `FillPattern` has it, and what the class means."""

    side: int
    path: str
    solid: bool
    stroke_width: int
    meaning: str


class TimelineData(msgspec.Struct, frozen=True, kw_only=True):
    """All that the script needs."""

    steps: tuple[StepData, ...]
    labels: tuple[LabelData, ...]
    looks: dict[ClassName, LookData]


def make_timeline(block: TimelinePlot, analysis: Analysis) -> TimelineData:
    """The data of the time line of `block`, of this analysis."""
    rows = _Rows(analysis)
    labels = tuple(_label(label, rows) for label in block.timeline.labels)
    used = {label.look for label in labels if label.look}
    if any(lane.waited_ns for step in block.timeline.steps for lane in step.lanes):
        used.add(OTHER_RANK)
    return TimelineData(
        steps=tuple(_step(step, block) for step in block.timeline.steps),
        labels=labels,
        looks={
            name: LookData(**asdict(pattern_of(row)), meaning=row.meaning)
            for name, row in classes().items()
            if name in used
        },
    )


def look_of(label: TimelineLabel, point: RooflinePoint | None) -> ClassName:
    """The class whose colour a piece has: its work's, or what it waits for; "" for plain ones."""
    if label.waits:
        return label.waits
    if label.kind == "collective":
        return COMMUNICATION
    if point is not None:
        return point.bottleneck.kind
    # Other work without a row is of another step or rank, where nothing says what binds it.
    return COPY if label.kind == "memcpy" else ""


class _Rows:
    """Where in the page the points of an analysis stand."""

    def __init__(self, analysis: Analysis) -> None:
        self.kernels = analysis.kernels
        self._modules = () if analysis.modules is None else analysis.modules.rows

    @cached_property
    def of_point(self) -> Mapping[int, str]:
        """The ids of rows by the identity of the points that they show or add up."""
        return {
            id(point): f"kernel-{number}"
            for number, each in enumerate(grouped(self.kernels)[:MOST_ROWS])
            for point in (each.point, *each.members)
        }

    @cached_property
    def _patterns(self) -> list[tuple[tuple[str, ...], str]]:
        return [(tuple(row.path.split(".")), row.path) for row in self._modules if row.path]

    def folded(self, module: str) -> str:
        """The row of the modules' table that stands for `module`; itself where there is none."""
        parts = tuple(module.split("."))
        for pattern, path in self._patterns:
            if len(pattern) == len(parts) and all(map(_alike, pattern, parts)):
                return path
        return module


def _alike(pattern: str, part: str) -> bool:
    """Whether a part of a path is one of those that `pattern` takes together: layer_*."""
    head, star, _ = pattern.partition("*")
    return part.startswith(head) and part[len(head) :].isdecimal() if star else part == pattern


def _label(label: TimelineLabel, rows: _Rows) -> LabelData:
    point = None if label.point is None else rows.kernels[label.point]
    name = piece_name(label)
    recorded = _shortened(formatting.printable(label.name))
    operator = label.operator if point is None else point.op or label.operator
    module = formatting.printable(label.module)
    return LabelData(
        name=_shortened(name),
        kind=label.kind,
        recorded=recorded if recorded != name else "",
        look=look_of(label, point),
        operator=formatting.printable(operator),
        module=module,
        folded=formatting.printable(rows.folded(label.module)) if module else "",
        place=formatting.printable(label.place),
        detail=_shortened(detail_text(label)),
        phase="" if point is None else point.phase,
        row="" if point is None else rows.of_point.get(id(point), ""),
        roof_ns=None
        if point is None or point.roof_ns is None or not point.calls
        else round(point.roof_ns / point.calls, 1),
        roof="" if point is None else point.roof,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def _step(step: TimelineStep, block: TimelinePlot) -> StepData:
    return StepData(
        name=step_name(step),
        length=step.length_ns,
        lead=step.lead_ns,
        lanes=tuple(_lane(lane, block) for lane in step.lanes),
        activities=tuple(
            ActivityData(
                name=each.part,
                group=counted_name(each),
                starts=each.starts_ns,
                lengths=each.lengths_ns,
                percents=each.percents,
            )
            for each in step.activities
        ),
    )


def _lane(lane: TimelineLane, block: TimelinePlot) -> LaneData:
    return LaneData(
        kind=lane.kind,
        name=lane_name(lane, on_cpu=block.on_cpu),
        group=group_name(lane, block.timeline, block.rank, on_cpu=block.on_cpu),
        starts=lane.starts_ns,
        lengths=lane.lengths_ns,
        labels=lane.labels,
        counts=lane.counts,
        busy=lane.busy_ns,
        launched=lane.launched_ns,
        launched_from=lane.launched_from,
        waited=lane.waited_ns,
    )
