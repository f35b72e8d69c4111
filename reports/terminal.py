"""The summary in a terminal: what `gpuprof run` ends with and `gpuprof summary` prints."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Fact,
    Facts,
    Heading,
    Headline,
    Ladder,
    Line,
    Notices,
    PointTable,
)
from gpuprof.reports.figures import (
    OVER_PEAK,
    any_over_peak,
    device_share,
    device_time_ns,
    is_unexplained,
    moved_text,
    per_step,
    point_roof_percent,
)
from gpuprof.reports.sections import sections_of
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.classes import bottleneck_class

TOP_KERNELS = 10
# From this width on the table also has room for FLOPs, bytes and intensity.
_WIDE = 100
_BAR_CELLS = 24
# Cells that labels have at least.
_LABELS = 11
# Columns that the figures beside a bar need.
_LADDER_FIGURES = 46
# Columns that the figures beside a kernel's name need.
_FIGURES = 53
_WIDE_FIGURES = 80


def render_summary(analysis: Analysis, console: Console, capture: Path | None = None) -> None:
    """Print the summary of `analysis`; with `capture`, its last line is the command to go on with.

    Names are printed as text: neither rich's markup nor a terminal's control codes work in them.
    What the figures rest on comes after them, and warnings stand last, where the eye is.
    """
    sections = sections_of(analysis)
    blocks = [block for section in sections for block in section.summary(analysis)]
    # The table of kernels is long: what is said in a line comes first.
    blocks.sort(key=lambda block: isinstance(block, PointTable))
    blocks += [block for section in sections for block in section.basis(analysis)]
    blocks.sort(key=lambda block: isinstance(block, Notices))
    room = _Room(console.width, _label_width(blocks))
    previous: Block | None = None
    for block in blocks:
        if previous is not None and not _belong_together(previous, block):
            console.print()
        for piece in _drawn(block, room):
            console.print(piece)
        previous = block
    if capture is not None:
        console.print()
        # Never wrapped: it is there to be copied.
        command = f"gpuprof report {shlex.quote(str(capture))}"
        console.print(Text(command), soft_wrap=True)


@dataclass(frozen=True)
class _Room:
    """The columns of the terminal, and those of them that labels of facts take in all blocks."""

    width: int
    labels: int


def _label_width(blocks: Iterable[Block]) -> int:
    lists = (block.facts for block in blocks if isinstance(block, Facts))
    return max((cell_len(fact.label) for facts in lists for fact in facts), default=0)


def _belong_together(above: Block, below: Block) -> bool:
    """Whether no blank line parts two blocks: the lines of the head, and lists of facts."""
    heads, lists = (Heading, Line), (Facts, Notices)
    return any(isinstance(above, kind) and isinstance(below, kind) for kind in (heads, lists))


@singledispatch
def _drawn(block: Block, room: _Room) -> Iterable[RenderableType]:
    raise TypeError(f"a terminal draws no {type(block).__name__}")


@_drawn.register
def _heading(block: Heading, room: _Room) -> Iterable[RenderableType]:
    yield _text(block.text, "bold")


@_drawn.register
def _line(block: Line, room: _Room) -> Iterable[RenderableType]:
    yield _text(block.text, "yellow" if block.alert else "")


@_drawn.register
def _headline(block: Headline, room: _Room) -> Iterable[RenderableType]:
    yield _text(block.sentence, "bold")


@_drawn.register
def _facts(block: Facts, room: _Room) -> Iterable[RenderableType]:
    yield facts_table(block.facts, room.labels)


@_drawn.register
def _notices(block: Notices, room: _Room) -> Iterable[RenderableType]:
    yield notices_table(block.sentences, room.labels)


def notices_table(sentences: Iterable[str], labels: int = 0) -> RichTable:
    """Warnings under their label, which has at least `labels` cells."""
    table = _grid(labels)
    for index, sentence in enumerate(sentences):
        table.add_row(Text("" if index else "Warnings", "yellow"), _text(sentence))
    return table


def facts_table(rows: Iterable[Fact], labels: int = 0) -> RichTable:
    """Labels in one column of at least `labels` cells, values with their notes in the other."""
    table = _grid(labels)
    for fact in rows:
        colour = "" if fact.kind is None else bottleneck_class(fact.kind).terminal
        value = _text(fact.value, f"bold {colour}".rstrip())
        if fact.note:
            value.append_text(_text(f"  {fact.note}", "none" if colour else "not bold dim"))
        table.add_row(_text(fact.label), value)
    return table


@_drawn.register
def _ladder(block: Ladder, room: _Room) -> Iterable[RenderableType]:
    yield Text(f"Where a step goes ({block.basis})")
    cells = min(_BAR_CELLS, max(0, room.width - _LADDER_FIGURES))
    table = RichTable.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for rung in block.rungs:
        start, end = (
            round(fraction * cells)
            for fraction in (rung.before_fraction, rung.before_fraction + rung.fraction)
        )
        table.add_row(
            _text(rung.row.part),
            formatting.duration(rung.nanoseconds),
            formatting.percent(rung.fraction),
            Text(" " * start + "█" * (end - start), rung.row.terminal),
        )
    yield Padding(table, (0, 0, 0, 2))


@_drawn.register
def _points(block: PointTable, room: _Room) -> Iterable[RenderableType]:
    shown = [each.point for each in block.points[:TOP_KERNELS]]
    wide = room.width >= _WIDE
    share = formatting.percent(sum(point.device_fraction for point in shown))
    yield Text(
        f"Largest {len(shown)} of {len(block.points)} {block.column.lower()}s by device time "
        f"({share}), " + ("means for one step" if block.profiled_steps else "totals")
    )
    table = RichTable(
        box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False, expand=False
    )
    # Rich would shorten the figures before a name that does not wrap.
    longest_name = max(16, room.width - (_WIDE_FIGURES if wide else _FIGURES))
    table.add_column(block.column, overflow="ellipsis", no_wrap=True, max_width=longest_name)
    for head in ("Calls", "ms", "Share", "FLOP/s"):
        table.add_column(head, justify="right", no_wrap=True)
    if wide:
        for head in ("FLOPs", "Bytes", "FLOP/B"):
            table.add_column(head, justify="right", no_wrap=True)
    table.add_column("Roof", justify="right", no_wrap=True)
    table.add_column("Class", no_wrap=True)
    for point in shown:
        table.add_row(*_cells(block.profiled_steps, point, wide=wide))
    yield table
    for line in _table_notes(block, shown):
        yield _text(line, "dim")


def _cells(steps: int, kernel: RooflinePoint, *, wide: bool) -> list[str | Text]:
    over = is_unexplained(kernel)
    work: list[str | Text] = [
        _per_step(steps, kernel.total_flops),
        _per_step(steps, kernel.total_bytes),
        formatting.intensity(kernel.arithmetic_intensity),
    ]
    return [
        _kernel_name(kernel),
        formatting.count(per_step(steps, kernel.calls)),
        formatting.milliseconds(device_time_ns(steps, kernel)),
        formatting.percent(device_share(kernel)),
        formatting.quantity(kernel.flops_per_s, "").strip(),
        *(work if wide else []),
        Text(point_roof_percent(kernel), "bold yellow" if over else ""),
        Text(kernel.bottleneck.kind, bottleneck_class(kernel.bottleneck.kind).terminal),
    ]


def _kernel_name(kernel: RooflinePoint) -> Text:
    """The kernel, and on a second line the operator that launched it; one line where they match."""
    if kernel.op == kernel.name:
        own = kernel.name if kernel.kind == "op" else formatting.kernel_name(kernel.name)
        return _text(own).append_text(_text(f" {kernel.phase}".rstrip(), "dim"))
    name = _text(formatting.kernel_name(kernel.name))
    launched = " ".join(part for part in (kernel.op, kernel.phase) if part)
    origin = ", ".join(part for part in (moved_text(kernel.transfer), launched) if part)
    return Text("\n").join((name, _text(f"  {origin}", "dim"))) if origin else name


def _per_step(steps: int, total: int | None) -> str:
    if total is None:
        return formatting.UNKNOWN
    return formatting.quantity(per_step(steps, total), "").strip()


def _table_notes(block: PointTable, shown: Sequence[RooflinePoint]) -> list[str]:
    """What the table's percentages are of, and what its signs mean where they occur."""
    notes = [block.roof]
    if any(kernel.flops is None or kernel.total_bytes is None for kernel in shown):
        notes.append(f"{formatting.UNKNOWN} unknown: `gpuprof report` says why for each kernel.")
    if any_over_peak(shown):
        notes.append(f"! {OVER_PEAK}.")
    return notes


def _grid(labels: int) -> RichTable:
    """Labels in one column of at least `labels` cells, values in the other."""
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, min_width=max(labels, _LABELS))
    grid.add_column(overflow="fold")
    return grid


def _text(value: str, style: str = "") -> Text:
    return Text(formatting.printable(value), style)
