"""The report as Markdown, for pull requests, wikis and issues."""

import re
from collections.abc import Iterable, Sequence
from functools import singledispatch

from gpuprof.reports import blocks, formatting
from gpuprof.reports.figures import (
    OVER_PEAK,
    any_over_peak,
    device_share,
    device_time_ns,
    launched_by,
    per_step,
    point_roof_percent,
    step_basis,
)
from gpuprof.reports.point_rows import other_rows
from gpuprof.reports.sections import sections_of
from gpuprof.roofline.analysis import Analysis, RooflinePoint

TOP_ROWS = 30
# An optimizer's shapes fill pages.
_LONGEST_SHAPES = 80

# Characters with a meaning in Markdown or HTML. A backslash before each makes it text. Parentheses
# and "!" have one beside brackets alone.
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&@$])")
# What begins a heading or a list, or underlines a heading, where it begins a line: 1.5 ms and -3%
# do none of these.
_FIRST = re.compile(r"^(\d{0,9})([-+=.)](?=[\s=-]|$)|#)")
# GitHub and GitLab make links of these after the Markdown is read, so that a backslash before them
# does not help: @name, #12, !12, GH-12, https://, www. An invisible space inside does.
_LINKED = re.compile(
    r"(?:[@#!$%&~^](?=[\w\"\u2019])|\bGH-(?=\d)|\b[a-z][a-z0-9+.-]*:(?=//)|\bwww(?=\.))",
    re.IGNORECASE,
)
INVISIBLE_SPACE = "\N{ZERO WIDTH SPACE}"


def render_markdown(analysis: Analysis) -> str:
    """The report as GitHub-flavoured Markdown; names are escaped, so none can break its form."""
    parts: list[str] = []
    for section in sections_of(analysis):
        drawn = [part for block in section.body(analysis) for part in _drawn(block)]
        title = section.title(analysis)
        parts += [f"## {title}", *drawn] if title and drawn else drawn
    return "\n\n".join(parts) + "\n"


def drawn_blocks(found: Iterable[blocks.Block]) -> list[str]:
    """The pieces of Markdown that blocks are drawn as."""
    return [part for block in found for part in _drawn(block)]


def escaped(text: str) -> str:
    """`text` as Markdown that shows it literally, on one line, and mentions and links nothing."""
    text = _LINKED.sub(rf"\g<0>{INVISIBLE_SPACE}", formatting.printable(text).strip())
    return _FIRST.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", text))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; heads that start with ">" are of columns set to the right."""
    aligns = ["---:" if name.startswith(">") else "---" for name in head]
    lines = ([name.removeprefix(">") for name in head], aligns, *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@singledispatch
def _drawn(block: blocks.Block) -> Iterable[str]:
    raise TypeError(f"Markdown draws no {type(block).__name__}")


@_drawn.register
def _heading(block: blocks.Heading) -> Iterable[str]:
    yield f"# {escaped(block.text)}"


@_drawn.register
def _line(block: blocks.Line) -> Iterable[str]:
    yield escaped(block.text)


@_drawn.register
def _headline(block: blocks.Headline) -> Iterable[str]:
    yield f"**{escaped(block.sentence)}**"
    if block.change:
        where = f" Where: {escaped(block.where)}." if block.where else ""
        yield f"**Change first:** {escaped(block.change)}{where}"


@_drawn.register
def _section_link(block: blocks.SectionLink) -> Iterable[str]:
    yield f"**{escaped(block.sentence)}**"


@_drawn.register
def _notices(block: blocks.Notices) -> Iterable[str]:
    yield "\n".join(f"> **Warning:** {escaped(text)}  " for text in block.sentences)


@_drawn.register(blocks.Tiles)
@_drawn.register(blocks.StepPlot)
@_drawn.register(blocks.ComputedFigures)
@_drawn.register(blocks.MemoryPlot)
@_drawn.register(blocks.RunPlot)
@_drawn.register(blocks.TimelinePlot)
@_drawn.register(blocks.HeatMap)
def _nothing(block: blocks.Block) -> Iterable[str]:
    """Pictures of figures that stand among the facts and tables, and what a page folds away."""
    return ()


@_drawn.register
def _verdict(block: blocks.BottleneckVerdict) -> Iterable[str]:
    yield f"**Largest loss: {block.kind}.** {escaped(block.sentence)}"


@_drawn.register
def _facts(block: blocks.Facts) -> Iterable[str]:
    if block.title:
        yield f"### {block.title}"
    rows = [(escaped(f.label), f"**{escaped(f.value)}**", escaped(f.note)) for f in block.facts]
    yield table(("", "", ""), rows)


@_drawn.register
def _paragraph(block: blocks.Paragraph) -> Iterable[str]:
    yield escaped(block.text) if block.role == "lead" else f"_{escaped(block.text)}_"


@_drawn.register
def _columns(block: blocks.Columns) -> Iterable[str]:
    for column in block.columns:
        for inner in column:
            yield from _drawn(inner)


@_drawn.register
def _details(block: blocks.Details) -> Iterable[str]:
    yield f"**{escaped(block.summary)}**"
    for inner in block.blocks:
        yield from _drawn(inner)


@_drawn.register
def _table(block: blocks.Table) -> Iterable[str]:
    heads = [f">{c.head}" if c.kind == "number" else c.head for c in block.columns]
    yield table(heads, (tuple(map(escaped, row)) for row in block.rows))


@_drawn.register
def _ladder(block: blocks.Ladder) -> Iterable[str]:
    rows = [
        (rung.row.part, formatting.duration(rung.nanoseconds), formatting.percent(rung.fraction))
        for rung in block.rungs
    ]
    rows.append((block.whole, formatting.step_duration(block.step_ns), formatting.percent(1.0)))
    yield table(("Part", ">Time", ">Share"), rows)
    yield f"_{block.basis}_"


@_drawn.register
def _points(block: blocks.PointTable) -> Iterable[str]:
    shown = [each.point for each in block.points[:TOP_ROWS]]
    rows = [_row(point, block.profiled_steps) for point in shown]
    others = other_rows(block.points[TOP_ROWS:])
    if others is not None:
        rows.append(
            (
                f"other: {others.number} smaller ones",
                formatting.count(per_step(block.profiled_steps, others.calls)),
                formatting.milliseconds(per_step(block.profiled_steps, others.device_ns)),
                formatting.percent(others.device_fraction),
                *("",) * 5,
            )
        )
    head = (
        block.column,
        ">Calls",
        ">ms",
        ">Share",
        ">FLOP/s",
        ">Bytes/s",
        ">FLOP/byte",
        ">Roof",
        "Class",
    )
    yield table(head, rows)
    remark = f" ! {OVER_PEAK}." if any_over_peak(shown) else ""
    basis = f"Calls and ms are of {step_basis(block.profiled_steps)}."
    yield f"_{basis} {escaped(block.roof)}_{remark}"


def _row(point: RooflinePoint, profiled_steps: int) -> tuple[str, ...]:
    short = formatting.short_name(point.name)
    name = formatting.joined([short, launched_by(point), point.phase])
    return (
        escaped(name),
        formatting.count(per_step(profiled_steps, point.calls)),
        formatting.milliseconds(device_time_ns(profiled_steps, point)),
        formatting.percent(device_share(point)),
        formatting.quantity(point.flops_per_s, "").strip(),
        formatting.quantity(point.bytes_per_s, "").strip(),
        formatting.intensity(point.arithmetic_intensity),
        point_roof_percent(point),
        point.bottleneck.kind,
    )


@_drawn.register
def _measured(block: blocks.MeasuredTable) -> Iterable[str]:
    lines = []
    for row in block.rows:
        cells = (" ".join(part for part in (c.text, c.ratio) if part) for c in row.cells)
        name = formatting.joined([row.title, row.subtitle, _clipped(row.shapes)])
        lines.append((escaped(name), *map(escaped, cells)))
    yield table(("Kernel", *(f">{head}" for head in block.heads)), lines)
    notes = [
        f"- {escaped(row.title)}, {escaped(note.label)}: "
        f"{escaped(note.value)}{f' _({escaped(note.note)})_' if note.note else ''}"
        for row in block.rows
        for note in row.notes
    ]
    if notes:
        yield "\n".join(notes)


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_SHAPES else f"{text[:_LONGEST_SHAPES]} ..."
