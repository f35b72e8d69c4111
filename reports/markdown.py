"""The report as Markdown, for a pull request, an issue or a wiki page."""

import re
from collections.abc import Iterable, Sequence

from gpuprof.reports import facts, formatting
from gpuprof.reports.measured import HEAD, lead, measured_rows
from gpuprof.reports.utilization import utilization_facts
from gpuprof.roofline.analysis import Analysis, RooflinePoint

TOP_ROWS = 30
# An optimizer's shapes fill pages.
_LONGEST_SHAPES = 80

# Characters with a meaning in Markdown or HTML. A backslash before each makes it text.
_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+!|~&@$])")


def render_markdown(analysis: Analysis) -> str:
    """The report as GitHub-flavoured Markdown; names are escaped, so none can break its form."""
    parts = [
        f"# {escaped(analysis.title)}",
        escaped(facts.device_line(analysis)),
        *_warnings(analysis),
        _facts_table(
            (
                *facts.step_facts(analysis.steps),
                *utilization_facts(analysis),
            )
        ),
        _verdict(analysis),
        *_split(analysis),
        *_points("Operators", analysis.ops, analysis),
        *_points("Kernels", analysis.kernels, analysis),
        *_points("Ranges", analysis.ranges, analysis),
        f"_{escaped(facts.roof_sentence(analysis))}_",
        *_measured(analysis),
        *_ceilings(analysis),
        *_coverage(analysis),
        *_machine(analysis),
    ]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """`text` as Markdown that shows it literally, on one line."""
    return _SPECIAL.sub(r"\\\1", formatting.printable(text))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; heads that start with ">" are of columns set to the right."""
    aligns = ["---:" if name.startswith(">") else "---" for name in head]
    lines = ([name.removeprefix(">") for name in head], aligns, *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _warnings(analysis: Analysis) -> list[str]:
    texts = [text for text in (facts.ending_sentence(analysis), *analysis.warnings) if text]
    return (
        ["\n".join(f"> **Warning:** {escaped(facts.sentence(text))}  " for text in texts)]
        if texts
        else []
    )


def _facts_table(items: Iterable[facts.Fact]) -> str:
    rows = [(escaped(f.label), f"**{escaped(f.value)}**", escaped(f.note)) for f in items]
    return table(("", "", ""), rows)


def _verdict(analysis: Analysis) -> str:
    verdict = analysis.bottleneck
    gain = f" {facts.gain_sentence(verdict.gain_ns)}" if verdict.gain_ns else ""
    evidence = facts.sentence(verdict.evidence)
    return f"**Bottleneck: {verdict.kind}.** {escaped(evidence + gain)}"


def _split(analysis: Analysis) -> list[str]:
    if analysis.split is None:
        return []
    rows = [
        (part.row.part, formatting.duration(part.nanoseconds), formatting.percent(part.fraction))
        for part in facts.step_shares(analysis.split)
    ]
    rows.append(("step", facts.step_duration(analysis.split.step_ns), formatting.percent(1.0)))
    return [
        "## Where a step's time goes",
        table(("Part", ">Time", ">Share"), rows),
        f"_{facts.split_basis(analysis.split)}_",
    ]


def _points(title: str, points: Sequence[RooflinePoint], analysis: Analysis) -> list[str]:
    if not points:
        return []
    shown, rest = points[:TOP_ROWS], points[TOP_ROWS:]
    rows = [_row(point, analysis) for point in shown]
    if rest:
        total_ns = sum(point.device_ns for point in rest)
        rows.append(
            (
                f"other: {len(rest)} smaller ones",
                formatting.count(facts.per_step(analysis, sum(point.calls for point in rest))),
                formatting.milliseconds(facts.per_step(analysis, total_ns)),
                formatting.percent(sum(point.device_fraction for point in rest)),
                *("",) * 5,
            )
        )
    head = (
        "Name",
        ">Calls",
        ">ms",
        ">Share",
        ">FLOP/s",
        ">Bytes/s",
        ">FLOP/byte",
        ">Roof",
        "Class",
    )
    parts = [f"## {title}", table(head, rows)]
    if facts.any_over_peak(shown):
        parts.append(f"! {facts.OVER_PEAK}.")
    return parts


def _row(point: RooflinePoint, analysis: Analysis) -> tuple[str, ...]:
    short = formatting.short_name(point.name)
    name = facts.joined([short, facts.launched_by(point), point.phase])
    return (
        escaped(name),
        formatting.count(facts.per_step(analysis, point.calls)),
        formatting.milliseconds(facts.per_step(analysis, point.device_ns)),
        formatting.percent(point.device_fraction),
        formatting.quantity(point.flops_per_s, "").strip(),
        formatting.quantity(point.bytes_per_s, "").strip(),
        formatting.intensity(point.arithmetic_intensity),
        facts.roof_percent(point.roof_fraction),
        point.bottleneck.kind,
    )


def _measured(analysis: Analysis) -> list[str]:
    if analysis.measured is None:
        return []
    rows = measured_rows(analysis.measured)
    lines = []
    for row in rows:
        cells = (" ".join(part for part in (c.text, c.ratio) if part) for c in row.cells)
        name = facts.joined([row.title, row.subtitle, _clipped(row.shapes)])
        lines.append((escaped(name), *map(escaped, cells)))
    notes = [
        f"- {escaped(row.title)}, {escaped(note.label)}: "
        f"{escaped(note.value)}{f' _({escaped(note.note)})_' if note.note else ''}"
        for row in rows
        for note in row.notes
    ]
    parts = [
        "## Measured against modelled",
        escaped(lead(analysis.measured)),
        table(("Kernel", *(f">{head}" for head in HEAD)), lines),
    ]
    return [*parts, "\n".join(notes)] if notes else parts


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_SHAPES else f"{text[:_LONGEST_SHAPES]} ..."


def _ceilings(analysis: Analysis) -> list[str]:
    if not analysis.ceilings:
        return []
    rows = [
        (
            escaped(ceiling.label),
            formatting.flops_rate(ceiling.rate)
            if ceiling.kind == "compute"
            else formatting.byte_rate(ceiling.rate),
            escaped(ceiling.reference),
        )
        for ceiling in analysis.ceilings
    ]
    return ["## Ceilings", table(("Ceiling", ">Rate", "Reference"), rows)]


def _coverage(analysis: Analysis) -> list[str]:
    parts = ["## Coverage", escaped(facts.coverage_sentence(analysis))]
    if analysis.coverage.unmodelled:
        rows = [
            (escaped(op.name), formatting.count(op.calls), formatting.duration(op.device_ns))
            for op in analysis.coverage.unmodelled
        ]
        parts.append(table(("Operator without a full model", ">Calls", ">Device time"), rows))
    return parts


def _machine(analysis: Analysis) -> list[str]:
    groups = (
        ("Device", facts.device_facts(analysis)),
        ("Software and settings", facts.environment_facts(analysis)),
        ("Device state during the timed steps", facts.state_facts(analysis)),
        ("Provenance", facts.provenance_facts(analysis)),
    )
    return [
        part for title, items in groups if items for part in (f"## {title}", _facts_table(items))
    ]
