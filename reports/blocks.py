"""What sections are made of: pieces of a report, without the form that a medium gives them.

A section yields blocks, and each renderer (terminal, Markdown, HTML) draws every kind it can. Text
is plain: escaping for a terminal, HTML or Markdown is the renderer's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from gpuprof.reports.computation import Computation
from gpuprof.reports.point_groups import GroupedPoint
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.classes import BottleneckClass, ClassName
from gpuprof.roofline.memory_figures import MemoryTimeline
from gpuprof.roofline.slow_step_figures import SlowSteps
from gpuprof.roofline.step_figures import StepTimes
from gpuprof.roofline.timeline_figures import Timeline


@dataclass(frozen=True)
class Fact:
    """One labelled value; `note` says what it is measured against or where it comes from."""

    label: str
    value: str
    note: str = ""
    # The class that gives the value its colour.
    kind: ClassName | None = None
    # The value as it was recorded, where people are better served with another form of it.
    recorded: str = ""
    # How the value was computed, which a page shows on request.
    computed: Computation | None = None


class Block:
    """Any piece of a report."""


@dataclass(frozen=True)
class Heading(Block):
    """The title of the whole report. Pages have it in their head."""

    text: str


@dataclass(frozen=True)
class Line(Block):
    """One line of the report's head; `alert` where it says that something went wrong."""

    text: str
    alert: bool = False


@dataclass(frozen=True)
class Headline(Block):
    """What limits the program and what the best change would gain, then that change and its place.

    `change` says why nothing is advised where nothing is; "" where nothing ran.
    """

    sentence: str
    # What most of the step goes to.
    kind: ClassName
    change: str = ""
    where: str = ""


@dataclass(frozen=True)
class Notices(Block):
    """Warnings, as whole sentences."""

    sentences: tuple[str, ...]


@dataclass(frozen=True)
class SectionLink(Block):
    """A sentence that leads to another section, by its key."""

    sentence: str
    section: str


@dataclass(frozen=True)
class Tile:
    """One of the large figures at the head of a page."""

    label: str
    value: str
    note: str
    computed: Computation | None = None


@dataclass(frozen=True)
class Tiles(Block):
    """The figures that a page begins with; other media have them among their facts."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class BottleneckVerdict(Block):
    """What holds the step back."""

    kind: ClassName
    sentence: str
    # Its share of the step, and how that was computed.
    share: str = ""
    computed: Computation | None = None


@dataclass(frozen=True)
class Facts(Block):
    """Labelled values, one below the other."""

    facts: tuple[Fact, ...]
    title: str = ""


@dataclass(frozen=True)
class Paragraph(Block):
    """Sentences: what a section is about, a remark on what is above, or why something is absent."""

    text: str
    role: Literal["lead", "note", "absent"] = "lead"


@dataclass(frozen=True)
class Prose(Block):
    """Paragraphs of our own words; what stands between ** is set in bold."""

    paragraphs: tuple[str, ...]


# What a reader of a page can select: in plots, tables and the time line at once.
SubjectKind: TypeAlias = Literal["kernel", "operator", "module", "range", "step"]


@dataclass(frozen=True)
class RowSubject:
    """What a row of a page stands for: wherever else that is shown, it is selected with it.

    `row` is the id of the row; `key` is the name as it was recorded, or the path of a module.
    """

    row: str
    kind: SubjectKind
    key: str


@dataclass(frozen=True)
class Column:
    """One column of a `Table`."""

    head: str
    kind: Literal["text", "number", "code", "reference"] = "text"


@dataclass(frozen=True)
class Table(Block):
    """Rows of text under heads."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    # Indices of rows that stand out.
    emphasised: frozenset[int] = frozenset()
    # What each row stands for, in a page; () where that is nothing that is shown elsewhere.
    subjects: tuple[RowSubject, ...] = ()


@dataclass(frozen=True)
class Details(Block):
    """Blocks that a page folds away under `summary`; they may be about something in plots."""

    summary: str
    blocks: tuple[Block, ...]
    subject: RowSubject | None = None
    # The table in it goes on where the one before it ends.
    continues: bool = False


# Rows of a table that a page shows before it folds the others away.
_UNFOLDED: Final = 12


def folded_table(
    columns: tuple[Column, ...],
    rows: tuple[tuple[str, ...], ...],
    rows_name: str,
    subjects: tuple[RowSubject, ...] = (),
) -> tuple[Block, ...]:
    """The first of `rows` as a table, and the others, if they are many, below it in `Details`."""
    if len(rows) <= 2 * _UNFOLDED:
        return (Table(columns, rows, subjects=subjects),)
    others = Table(columns, rows[_UNFOLDED:], subjects=subjects[_UNFOLDED:])
    return (
        Table(columns, rows[:_UNFOLDED], subjects=subjects[:_UNFOLDED]),
        Details(f"{len(others.rows)} more {rows_name}", (others,), continues=True),
    )


@dataclass(frozen=True)
class ComputedFigure:
    """A figure of a table or a drawing, and how it was computed."""

    label: str
    value: str
    computed: Computation


@dataclass(frozen=True)
class ComputedFigures(Block):
    """How figures above were computed, on request in a page."""

    title: str
    figures: tuple[ComputedFigure, ...]


@dataclass(frozen=True)
class Columns(Block):
    """Lists of blocks that a wide page sets side by side."""

    columns: tuple[tuple[Block, ...], ...]


@dataclass(frozen=True)
class Rung:
    """One part of a step's time: a bottleneck class with its share of the step."""

    row: BottleneckClass
    nanoseconds: int
    fraction: float
    # What the parts before it take together: where it begins.
    before_fraction: float
    # The key of the section that explains it; "" where none does.
    section: str = ""


@dataclass(frozen=True)
class Ladder(Block):
    """A step's parts, each beginning where the one before it ends: from the time that the device
    needs at its ceilings to the step. They add up to the step; those of no time are left out."""

    rungs: tuple[Rung, ...]
    step_ns: int
    # "a step", "a profiled step", "the trace".
    whole: str
    # What the times were taken from.
    basis: str


@dataclass(frozen=True)
class StepPlot(Block):
    """One dot a step, on a page."""

    steps: StepTimes
    caption: str


@dataclass(frozen=True)
class MemoryPlot(Block):
    """Memory over time, on a page."""

    timeline: MemoryTimeline
    # What the device has.
    total_bytes: int | None
    caption: str


@dataclass(frozen=True)
class RunPlot(Block):
    """The time of each step over a whole run, with the device's clock, on a page."""

    slow: SlowSteps


@dataclass(frozen=True)
class TimelinePlot(Block):
    """What ran when, in lanes, on a page."""

    timeline: Timeline
    # The analysed one.
    rank: int
    # Device work is leaf operators on threads.
    on_cpu: bool


@dataclass(frozen=True)
class HeatMap(Block):
    """Nanoseconds by row and column as shades, on a page. None where it is unknown."""

    row_heads: tuple[str, ...]
    column_heads: tuple[str, ...]
    # A tuple for each row, and the words of each cell.
    values: tuple[tuple[int | None, ...], ...]
    notes: tuple[tuple[str, ...], ...]
    caption: str


@dataclass(frozen=True)
class PlotLevel:
    """Points of one level. The id of each is that of its row in the page."""

    name: str
    label: str
    points: tuple[tuple[str, RooflinePoint], ...]
    # How many points have no row of their own and so no place in the plot, and their share of
    # device time.
    others: int = 0
    others_fraction: float = 0.0
    # Its axes: FLOP/byte and FLOP/s, or bytes of a transfer and bytes/s.
    axes: Literal["work", "link"] = "work"
    # By row, where the models have it that was counted: FLOP/byte and FLOP/s.
    modelled: dict[str, tuple[float, float]] = field(default_factory=dict)
    # What there is to know about what is drawn; "" where that is clear.
    note: str = ""


@dataclass(frozen=True)
class RooflinePlot(Block):
    """The roofline, on a page."""

    levels: tuple[PlotLevel, ...]


@dataclass(frozen=True)
class PointFigures(Block):
    """All figures of one point."""

    point: RooflinePoint
    profiled_steps: int


# By the key of a table of points, which is the level of its points.
POINT_KINDS: Final[dict[str, SubjectKind]] = {
    "kernel": "kernel",
    "op": "operator",
    "range": "range",
    "step": "step",
}


@dataclass(frozen=True)
class PointTable(Block):
    """The points of one level, sorted by device time. Each medium shows as many as it has room for.

    `key` begins the ids of its rows in a page, `column` heads the column of names.
    """

    key: str
    column: str
    points: Sequence[GroupedPoint]
    # Figures are means for one of them; totals where there were none.
    profiled_steps: int
    # What the percentages of the roof are of.
    roof: str

    @property
    def kind(self) -> SubjectKind:
        """What its rows stand for."""
        return POINT_KINDS[self.key]


@dataclass(frozen=True)
class MeasuredCell:
    """What was counted, and its ratio to the modelled figure, "" where there is none."""

    text: str
    ratio: str = ""


@dataclass(frozen=True)
class MeasuredRow:
    """The kernels, their operator, a cell for each head of the table, and the reasons."""

    title: str
    subtitle: str
    shapes: str
    cells: tuple[MeasuredCell, ...]
    # What each is about and why it differs, or why nothing is compared.
    notes: tuple[Fact, ...]
    # The cells that say something, each with its head.
    figures: tuple[Fact, ...]
    subject: RowSubject


@dataclass(frozen=True)
class MeasuredTable(Block):
    """Counted work beside the modelled."""

    heads: tuple[str, ...]
    rows: tuple[MeasuredRow, ...]


@dataclass(frozen=True)
class ClassLegend(Block):
    """The bottleneck classes with their signs and meanings."""

    rows: tuple[BottleneckClass, ...]
