"""A comparison as Markdown, for a pull request or a job's summary."""

from gpuprof.reports.comparison import sentences
from gpuprof.reports.markdown import escaped, table
from gpuprof.roofline.comparison.result import Comparison, Match

_MOST_LISTED = 20


def render_comparison(comparison: Comparison, *, top: int) -> str:
    """`comparison` as GitHub-flavoured Markdown with its `top` largest changes."""
    pieces = [
        f"# {escaped(sentences.headline(comparison))}",
        table(
            ("", "Capture"),
            (
                ("base", escaped(sentences.side_line(comparison.base))),
                ("head", escaped(sentences.side_line(comparison.head))),
            ),
        ),
    ]
    if warnings := sentences.warnings(comparison):
        pieces.append("\n".join(f"> **Warning:** {escaped(text)}  " for text in warnings))
    if comparison.step is not None:
        pieces += [f"## {escaped(sentences.parts_title(comparison))}", _parts(comparison)]
    if comparison.kernels:
        pieces += [f"## Largest changes of {len(comparison.kernels)}", _changes(comparison, top)]
    for title, rows in (
        ("Renamed", sentences.renamed_rows(comparison)),
        ("New", _rows_of(comparison, "new")),
        ("Gone", _rows_of(comparison, "removed")),
    ):
        if rows:
            pieces += [f"## {title}: {len(rows)}", _list(rows)]
    if differing := sentences.environment_facts(comparison):
        lines = (f"- {escaped(fact.value)}" for fact in differing)
        pieces += ["## Also differs", "\n".join(lines)]
    return "\n\n".join(pieces) + "\n"


def _parts(comparison: Comparison) -> str:
    assert comparison.step is not None
    rows = [
        (escaped(part.label), sentences.delta(part.change_ns), escaped(part.note))
        for part in sentences.parts(comparison.step)
    ]
    rows.append(("**sum**", f"**{sentences.delta(comparison.step.change_ns)}**", ""))
    return table(("Part", ">Change", ""), rows)


def _changes(comparison: Comparison, top: int) -> str:
    rows = [
        (
            _name(row),
            sentences.delta(row.change.change_ns),
            escaped(row.time),
            escaped(row.calls),
            escaped(row.split),
            escaped(row.roofline),
        )
        for row in sentences.change_rows(comparison.kernels[:top])
    ]
    return table(
        ("Kernel", ">Change", ">Time a step", ">Calls a step", "Split", "Class, roof"), rows
    )


def _name(row: sentences.ChangeRow) -> str:
    badge = f" *{row.badge}*" if row.badge else ""
    op = f"<br>{escaped(row.op)}" if row.op and row.op != row.title else ""
    return f"{escaped(row.title)}{badge}{op}"


def _rows_of(comparison: Comparison, match: Match) -> tuple[sentences.ChangeRow, ...]:
    return sentences.change_rows(tuple(c for c in comparison.kernels if c.match == match))


def _list(rows: tuple[sentences.ChangeRow, ...]) -> str:
    lines = []
    for row in rows[:_MOST_LISTED]:
        how = f" ({escaped(row.match)})" if row.change.renamed else ""
        lines.append(f"- {sentences.delta(row.change.change_ns)} {escaped(row.title)}{how}")
    if len(rows) > _MOST_LISTED:
        lines.append(f"- and {len(rows) - _MOST_LISTED} more")
    return "\n".join(lines)
