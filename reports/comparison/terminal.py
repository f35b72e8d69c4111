"""A comparison in a terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpuprof.reports import formatting
from gpuprof.reports.comparison import sentences
from gpuprof.reports.comparison.amounts import before_after, delta
from gpuprof.reports.comparison.headline import headline
from gpuprof.reports.comparison.places import PlaceRow, line_rows, module_rows
from gpuprof.reports.formatting import joined
from gpuprof.reports.terminal import facts_table, notices_table
from gpuprof.roofline.comparison.result import Comparison

_BAR_CELLS = 20
# Columns that the figures beside a kernel's name need.
_FIGURES = 46
# And beside a line or a module.
_PLACE_FIGURES = 50
# Cells of the labels of what stands last.
_LABELS = 12
# And beside the label of a part of the step.
_KIND_FIGURES = 64


def render_comparison(
    comparison: Comparison, console: Console, *, top: int, next_command: str = ""
) -> None:
    """Print `comparison` with its `top` largest changes, and last the command to go on with."""
    console.print(_text(headline(comparison), "bold"))
    for label, side in (("base", comparison.base), ("head", comparison.head)):
        console.print(_text(f"{label}  {sentences.side_line(side)}"))
    if figures := sentences.figure_facts(comparison):
        console.print()
        console.print(facts_table(figures, _LABELS))
    _print_kinds(comparison, console)
    _print_parts(comparison, console)
    _print_places("lines", ("Line", "Waiting"), line_rows(comparison), console, top)
    _print_places("modules", ("Module", "In all"), module_rows(comparison), console, top)
    _print_changes(comparison, console, top)
    _print_list("Renamed", sentences.renamed_rows(comparison), console, top)
    for match, label in (("new", "New"), ("removed", "Gone")):
        found = tuple(change for change in comparison.kernels if change.match == match)
        _print_list(label, sentences.change_rows(found), console, top)
    console.print()
    if facts := sentences.environment_facts(comparison):
        console.print(facts_table(facts, _LABELS))
    if warnings := sentences.warnings(comparison):
        # Last, where the eye is, as in the summary.
        console.print(notices_table(warnings, _LABELS))
    if next_command:
        console.print()
        # Never wrapped: it is there to be copied.
        console.print(Text(next_command), soft_wrap=True)


def _print_kinds(comparison: Comparison, console: Console) -> None:
    """The parts of the step before and after, in the order and words of the summary."""
    if not comparison.kinds:
        return
    largest = max(abs(kind.change_ns) for kind in comparison.kinds) or 1.0
    cells = min(_BAR_CELLS, max(0, console.width - _KIND_FIGURES))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for kind in comparison.kinds:
        times = before_after(*map(formatting.duration, (kind.base_ns, kind.head_ns)))
        bar = _bar(kind.change_ns / largest * cells)
        table.add_row(_text(kind.part), times, delta(kind.change_ns), bar)
    console.print()
    console.print(Text(sentences.parts_title(comparison)))
    console.print(Padding(table, (0, 0, 0, 2)))


def _bar(cells: float) -> Text:
    """A bar whose sign chooses its colour."""
    return Text("█" * round(abs(cells)), "red" if cells > 0 else "green")


def _print_places(
    things: str, heads: tuple[str, str], rows: tuple[PlaceRow, ...], console: Console, top: int
) -> None:
    if not rows:
        return
    what, other = heads
    console.print()
    console.print(
        Text(f"Largest {min(top, len(rows))} of {len(rows)} {things} by change, for one step")
    )
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    room = max(16, console.width - _PLACE_FIGURES)
    table.add_column(what, overflow="ellipsis", no_wrap=True, max_width=room)
    for head in ("Change", "Time", other):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows[:top]:
        name = _text(_end_of(row.place, room), "bold")
        if below := joined((row.badge, row.subtitle)):
            name.append_text(_text(f"\n  {below}", "not bold dim"))
        table.add_row(name, _change(row.change_ns), row.time, _change(row.other_change_ns))
    console.print(table)


def _end_of(place: str, room: int) -> str:
    """The end of a path, where its name and line are."""
    return place if len(place) <= room else f"…{place[len(place) - room + 1 :]}"


def _change(change_ns: float | None) -> Text:
    style = "" if not change_ns else "red" if change_ns > 0 else "green"
    return Text(delta(change_ns), style)


def _print_parts(comparison: Comparison, console: Console) -> None:
    if comparison.step is None:
        return
    parts = sentences.parts(comparison.step)
    largest = max((abs(part.change_ns) for part in parts), default=0.0) or 1.0
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for part in parts:
        bar = _bar(part.change_ns / largest * _BAR_CELLS)
        note = _text(part.note, "dim")
        table.add_row(_text(part.label), delta(part.change_ns), bar.append(" ") + note)
    console.print()
    by_kernels = sentences.KERNEL_PARTS if comparison.kinds else sentences.parts_title(comparison)
    console.print(Text(by_kernels))
    console.print(Padding(table, (0, 0, 0, 2)))


def _print_changes(comparison: Comparison, console: Console, top: int) -> None:
    rows = sentences.change_rows(comparison.kernels[:top])
    if not rows:
        return
    console.print()
    console.print(
        Text(f"Largest {len(rows)} of {len(comparison.kernels)} kernels by change, for one step")
    )
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    room = max(16, console.width - _FIGURES)
    table.add_column("Kernel", overflow="ellipsis", no_wrap=True, max_width=room)
    table.add_column("Change", justify="right", no_wrap=True)
    table.add_column("Time", justify="right", no_wrap=True)
    table.add_column("Calls", justify="right", no_wrap=True)
    for row in rows:
        name = _text(row.title, "bold")
        origin = () if row.op in row.title else (row.op, row.change.side.phase)
        for line in (joined((row.badge, *origin)), row.roofline, row.split):
            if line:
                name.append_text(_text(f"\n  {line}", "not bold dim"))
        table.add_row(name, _change(row.change.change_ns), row.time, row.calls)
    console.print(table)


def _print_list(
    label: str, rows: tuple[sentences.ChangeRow, ...], console: Console, most: int
) -> None:
    if not rows:
        return
    console.print()
    console.print(Text(f"{label}: {len(rows)}"))
    for row in rows[:most]:
        line = _text(f"  {delta(row.change.change_ns):>10}  {row.title}")
        how = row.match if row.change.renamed else ""
        origin = "" if row.op in row.title else row.op
        line.append_text(_text(f"  {joined((origin, how))}", "dim"))
        console.print(line, overflow="ellipsis", no_wrap=True)
    if len(rows) > most:
        console.print(_text(f"  and {len(rows) - most} more", "dim"))


def _text(text: str, style: str = "") -> Text:
    """Text in which neither rich's markup nor control codes of names work."""
    lines = (formatting.printable(line) for line in text.split("\n"))
    return Text("\n".join(lines), style)
