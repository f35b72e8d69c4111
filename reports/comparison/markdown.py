"""A comparison as Markdown, for a pull request or a job's summary."""

from gpuprof.reports import formatting
from gpuprof.reports.comparison import sentences
from gpuprof.reports.comparison.amounts import before_after, delta
from gpuprof.reports.comparison.headline import headline
from gpuprof.reports.comparison.places import PlaceRow, line_rows, module_rows
from gpuprof.reports.markdown import escaped, table
from gpuprof.roofline.comparison.kernel_changes import Match
from gpuprof.roofline.comparison.result import Comparison

_MOST_LISTED = 20


def render_comparison(comparison: Comparison, *, top: int) -> str:
    """`comparison` as GitHub-flavoured Markdown with its `top` largest changes.

    One screen says how much, why and where; the rest is folded away.
    """
    sides = (("base", comparison.base), ("head", comparison.head))
    pieces = [
        f"## {escaped(headline(comparison))}",
        table(("", "Capture"), ((n, escaped(sentences.side_line(side))) for n, side in sides)),
    ]
    if figures := sentences.figure_facts(comparison):
        cells = [(escaped(f.label), f"**{escaped(f.value)}**", escaped(f.note)) for f in figures]
        pieces.append(table(("", "", ""), cells))
    title = escaped(sentences.parts_title(comparison))
    if comparison.kinds:
        pieces += [f"### {title}", _kinds(comparison)]
    elif comparison.step is not None:
        pieces += [f"### {title}", _parts(comparison)]
    if lines := line_rows(comparison):
        pieces += [f"### {sentences.LINES}", _places(("Line", ">Waiting"), lines[:top])]
        pieces.append(f"_{sentences.PLACES_NOTE}_")
    if comparison.kinds:
        pieces += _folded(sentences.KERNEL_PARTS, _parts(comparison))
    if modules := module_rows(comparison):
        found = _places(("Module", ">In all"), modules[:top])
        pieces += _folded(sentences.MODULES, found, f"_{sentences.MODULES_NOTE}_")
    if comparison.kernels:
        title = f"Largest changes of {len(comparison.kernels)} kernels"
        pieces += _folded(title, _changes(comparison, top))
    for title, rows in (
        ("Renamed", sentences.renamed_rows(comparison)),
        ("New", _rows_of(comparison, "new")),
        ("Gone", _rows_of(comparison, "removed")),
    ):
        if rows:
            pieces += _folded(f"{title}: {len(rows)}", _list(rows))
    if differing := sentences.environment_facts(comparison):
        facts = "\n".join(f"- {escaped(fact.value)}" for fact in differing)
        pieces += _folded("Also differs", facts)
    if warnings := sentences.warnings(comparison):
        pieces.append("\n".join(f"> **Warning:** {escaped(text)}  " for text in warnings))
    return "\n\n".join(pieces) + "\n"


def _folded(title: str, *pieces: str) -> list[str]:
    return [f"<details><summary>{title}</summary>", *pieces, "</details>"]


def _kinds(comparison: Comparison) -> str:
    rows = [
        (
            escaped(kind.part),
            before_after(*map(formatting.duration, (kind.base_ns, kind.head_ns))),
            delta(kind.change_ns),
        )
        for kind in comparison.kinds
    ]
    change_ns = sum(kind.change_ns for kind in comparison.kinds)
    rows.append(("**sum**", "", f"**{delta(change_ns)}**"))
    return table(("Part", ">Time", ">Change"), rows)


def _places(heads: tuple[str, str], rows: tuple[PlaceRow, ...]) -> str:
    what, other = heads
    cells = [
        (
            _titled(row.place, row.badge, row.subtitle),
            delta(row.change_ns),
            escaped(row.time),
            delta(row.other_change_ns),
            escaped(row.other_time),
        )
        for row in rows
    ]
    return table((what, ">Change", ">Time", other, ">"), cells)


def _parts(comparison: Comparison) -> str:
    assert comparison.step is not None
    rows = [
        (escaped(part.label), delta(part.change_ns), escaped(part.note))
        for part in sentences.parts(comparison.step)
    ]
    rows.append(("**sum**", f"**{delta(comparison.step.change_ns)}**", ""))
    return table(("Part", ">Change", ""), rows)


def _changes(comparison: Comparison, top: int) -> str:
    rows = [
        (
            _name(row),
            delta(row.change.change_ns),
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
    return _titled(row.title, row.badge, row.op if row.op != row.title else "")


def _titled(title: str, badge: str, below: str) -> str:
    mark = f" *{badge}*" if badge else ""
    return f"{escaped(title)}{mark}{f'<br>{escaped(below)}' if below else ''}"


def _rows_of(comparison: Comparison, match: Match) -> tuple[sentences.ChangeRow, ...]:
    return sentences.change_rows(tuple(c for c in comparison.kernels if c.match == match))


def _list(rows: tuple[sentences.ChangeRow, ...]) -> str:
    lines = []
    for row in rows[:_MOST_LISTED]:
        how = f" ({escaped(row.match)})" if row.change.renamed else ""
        lines.append(f"- {delta(row.change.change_ns)} {escaped(row.title)}{how}")
    if len(rows) > _MOST_LISTED:
        lines.append(f"- and {len(rows) - _MOST_LISTED} more")
    return "\n".join(lines)
