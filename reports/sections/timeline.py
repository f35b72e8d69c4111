"""What ran when in a typical step and in the slowest one."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Paragraph, Table, TimelinePlot
from gpuprof.reports.sections.kernels import is_cpu
from gpuprof.reports.sections.section import Section, titled
from gpuprof.reports.timeline_words import detail_text, lane_name, piece_name, step_name
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.timeline_figures import Timeline, TimelineLane, TimelineStep

_LONGEST: Final = 8
_LONGEST_IDLE: Final = 5
_MADE_BEFORE: Final = (
    "This analysis was made without a time line: gpuprof analyze CAPTURE -o NEW.gpuprof makes it "
    "again from the tables of the capture."
)
_COLUMNS: Final = (
    Column("What", "code"),
    Column("On"),
    Column("Begins at", "number"),
    Column("Lasts", "number"),
    Column("Share", "number"),
    Column("Class"),
    Column("Operator or call", "code"),
    Column("Line", "code"),
)


def _body(analysis: Analysis) -> Sequence[Block]:
    timeline = analysis.timeline
    if timeline is None:
        return (Paragraph(_MADE_BEFORE, "absent"),) if analysis.kernels else ()
    step = timeline.steps[0]
    rows = tuple(_rows(analysis, timeline, step))
    if not rows:
        return (Paragraph(_lead(analysis, timeline)),)
    title = f"The longest pieces of {step_name(step)}, of each name one:"
    return (Paragraph(f"{_lead(analysis, timeline)} {title}"), Table(_COLUMNS, rows))


def _lead(analysis: Analysis, timeline: Timeline) -> str:
    typical, *slower = timeline.steps
    length = formatting.step_duration(typical.length_ns)
    if typical.index is None:
        return f"Nothing marks steps, so this is all that was recorded: {length}."
    said = [
        f"Step {typical.index} takes {length}, nearest to the median of "
        f"{formatting.counted(timeline.of_steps, 'profiled step')}."
    ]
    said += [
        f"The slowest of them, step {step.index}, takes {formatting.step_duration(step.length_ns)}."
        for step in slower
    ]
    median_ns = analysis.steps.median_ns
    if analysis.steps.timed and median_ns is not None:
        median = formatting.step_duration(median_ns)
        said.append(f"Without the profiler a step takes {median}.")
    if any(step.lead_ns for step in timeline.steps):
        said.append("What stands before 0 launched the step's work, while earlier work still ran.")
    said += _counted(typical)
    said += _of_ranks(analysis, timeline)
    left_out = sum(step.left_out for step in timeline.steps)
    if left_out:
        said.append(
            f"{formatting.counted(left_out, 'event')} of deeply nested ranges or of threads with "
            "little to do are left out."
        )
    return " ".join(said)


def _counted(step: TimelineStep) -> Iterator[str]:
    """What the counters of the first device say of the step in the mean."""
    first = [each for each in step.activities if each.device == step.activities[0].device]
    if first:
        shares = ", ".join(
            f"{each.part} {formatting.percent(each.mean_percent / 100)}" for each in first
        )
        window = formatting.duration(median(first[0].lengths_ns))
        yield f"Counted in windows of {window}, active in the mean: {shares}."


def _of_ranks(analysis: Analysis, timeline: Timeline) -> Iterator[str]:
    """Which other ranks have lanes, and why these."""
    if analysis.ranks is None:
        return
    others = len(analysis.ranks.ranks) - 1
    if others and not timeline.ranks:
        yield "Other ranks are not beside it, as nothing tells how far their clocks are apart."
        return
    roles = [f"rank {each.rank} ({each.role})" for each in timeline.ranks if each.role]
    shown = ", ".join(roles)
    if len(timeline.ranks) < others:
        yield f"Of {others} other ranks these are beside it: {shown}."
    elif roles:
        yield f"The other ranks are beside it, by the clock of rank {analysis.rank}: {shown}."
    if any(each.collectives_only for each in timeline.ranks):
        yield "Of ranks whose tables are not in the capture, collectives alone are known."


class _Piece(NamedTuple):
    """One event of a lane."""

    lane: TimelineLane
    start_ns: int
    length_ns: int
    label: int


def _pieces(lane: TimelineLane) -> Iterator[_Piece]:
    """The events in the step that are pieces of their own."""
    columns = zip(lane.starts_ns, lane.lengths_ns, lane.labels, strict=True)
    for number, (start_ns, length_ns, label) in enumerate(columns):
        if start_ns >= 0 and (not lane.counts or lane.counts[number] == 1):
            yield _Piece(lane, start_ns, length_ns, label)


def _rows(analysis: Analysis, timeline: Timeline, step: TimelineStep) -> Iterator[tuple[str, ...]]:
    """The longest pieces of device work, and of the time without any: of each name the longest."""
    for kind, most in (("stream", _LONGEST), ("idle", _LONGEST_IDLE)):
        longest: dict[str, _Piece] = {}
        for lane in step.lanes:
            for piece in _pieces(lane) if lane.kind == kind and lane.rank is None else ():
                name = timeline.labels[piece.label].name
                if name not in longest or longest[name].length_ns < piece.length_ns:
                    longest[name] = piece
        chosen = sorted(longest.values(), key=lambda each: (-each.length_ns, each.start_ns))
        for lane, start, length, at in chosen[:most]:
            label = timeline.labels[at]
            point = None if label.point is None else analysis.kernels[label.point]
            yield (
                piece_name(label),
                lane_name(lane, on_cpu=is_cpu(analysis)),
                formatting.duration(start),
                formatting.duration(length),
                formatting.percent(length / step.length_ns) if step.length_ns else "",
                label.waits or ("" if point is None else point.bottleneck.kind),
                formatting.joined((label.operator, detail_text(label))),
                label.place,
            )


def _page_only(analysis: Analysis) -> Sequence[Block]:
    timeline = analysis.timeline
    return () if timeline is None else (TimelinePlot(timeline, analysis.rank, is_cpu(analysis)),)


SECTION = Section(
    key="timeline",
    title=titled("Time line"),
    fields=("timeline",),
    of_work=True,
    body=_body,
    page_only=_page_only,
)
