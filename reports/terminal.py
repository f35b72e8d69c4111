"""The summary in a terminal: what `gpuprof run` ends with and `gpuprof summary` prints."""

import shlex
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpuprof.reports import facts, formatting
from gpuprof.roofline.analysis import Analysis, RooflinePoint

TOP_OPS = 10
# From this width on the table also has room for FLOPs, bytes and intensity.
_WIDE = 100
_BAR_CELLS = 24
_STYLES = {
    "roof": "green",
    "compute": "blue",
    "memory": "yellow",
    "latency": "magenta",
    "launch": "red",
    "waiting": "red",
    "unmodelled": "dim",
    "unknown": "dim",
}


def print_summary(analysis: Analysis, capture: Path) -> None:
    """Print the summary on stderr, where `gpuprof run` says what it has to say."""
    render_summary(analysis, Console(stderr=True), capture)


def render_summary(analysis: Analysis, console: Console, capture: Path | None = None) -> None:
    """Print the summary of `analysis`; with `capture`, its last line is the command to go on with.

    Names are printed as text: neither rich's markup nor a terminal's control codes work in them.
    """
    _print_head(analysis, console)
    _print_step(analysis, console)
    _print_split(analysis, console)
    _print_top_ops(analysis, console)
    _print_coverage(analysis, console)
    _print_warnings(analysis, console)
    if capture is not None:
        _blank(console)
        # Never wrapped: it is there to be copied.
        command = f"gpuprof report {shlex.quote(str(capture))}"
        console.print(Text(command), soft_wrap=True)


def _print_head(analysis: Analysis, console: Console) -> None:
    console.print(_text(analysis.title, "bold"))
    console.print(_text(facts.device_line(analysis)))
    ending = facts.ending_sentence(analysis)
    if ending:
        console.print(_text(ending, "yellow"))
    _blank(console)


def _print_step(analysis: Analysis, console: Console) -> None:
    table = _grid()
    for fact in (
        *facts.step_facts(analysis.steps),
        *facts.utilization_facts(analysis),
    ):
        value = _text(fact.value, "bold")
        if fact.note:
            value.append_text(_text(f"  {fact.note}", "not bold dim"))
        table.add_row(_text(fact.label), value)
    verdict = analysis.bottleneck
    evidence = facts.sentence(verdict.evidence)
    if verdict.gain_ns:
        evidence = f"{evidence} {facts.gain_sentence(verdict.gain_ns)}"
    table.add_row(
        _text("Bottleneck"),
        _text(verdict.kind, f"bold {_STYLES[verdict.kind]}").append_text(
            _text(f"  {evidence}", "none")
        ),
    )
    console.print(table)


def _print_split(analysis: Analysis, console: Console) -> None:
    split = analysis.split
    if split is None:
        return
    _blank(console)
    console.print(Text(f"Where a step goes ({facts.split_basis(split)})"))
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    for part in facts.split_parts(split):
        style = _STYLES[part.key]
        table.add_row(
            _text(part.label),
            formatting.duration(part.nanoseconds),
            formatting.percent(part.fraction),
            Text("█" * round(part.fraction * _BAR_CELLS), style),
        )
    console.print(Padding(table, (0, 0, 0, 2)))


def _print_top_ops(analysis: Analysis, console: Console) -> None:
    if not analysis.ops:
        return
    shown = analysis.ops[:TOP_OPS]
    wide = console.width >= _WIDE
    _blank(console)
    share = formatting.percent(sum(op.device_fraction for op in shown))
    console.print(
        Text(
            f"Largest {len(shown)} of {len(analysis.ops)} operators by device time ({share}), "
            + ("means for one step" if analysis.steps.profiled else "totals")
        )
    )
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False, expand=False)
    table.add_column("Operator", overflow="fold", ratio=1, min_width=16)
    for head in ("Calls", "ms", "Share", "FLOP/s"):
        table.add_column(head, justify="right", no_wrap=True)
    if wide:
        for head in ("FLOPs", "Bytes", "FLOP/B"):
            table.add_column(head, justify="right", no_wrap=True)
    table.add_column("Roof", justify="right", no_wrap=True)
    table.add_column("Class", no_wrap=True)
    for op in shown:
        table.add_row(*_op_cells(analysis, op, wide=wide))
    console.print(table)
    for line in _table_notes(analysis, shown):
        console.print(_text(line, "dim"))


def _op_cells(analysis: Analysis, op: RooflinePoint, *, wide: bool) -> list[str | Text]:
    name = _text(op.name)
    if op.phase:
        name.append_text(_text(f" {op.phase}", "dim"))
    over = facts.is_over_peak(op.roof_fraction)
    work: list[str | Text] = [
        _per_step(analysis, op.total_flops),
        _per_step(analysis, op.total_bytes),
        formatting.intensity(op.arithmetic_intensity),
    ]
    return [
        name,
        formatting.count(facts.per_step(analysis, op.calls)),
        formatting.milliseconds(facts.per_step(analysis, op.device_ns)),
        formatting.percent(op.device_fraction),
        formatting.quantity(op.flops_per_s, "").strip(),
        *(work if wide else []),
        Text(facts.roof_percent(op.roof_fraction), "bold yellow" if over else ""),
        Text(op.bottleneck.kind, _STYLES[op.bottleneck.kind]),
    ]


def _per_step(analysis: Analysis, total: int | None) -> str:
    if total is None:
        return formatting.UNKNOWN
    return formatting.quantity(facts.per_step(analysis, total), "").strip()


def _table_notes(analysis: Analysis, shown: tuple[RooflinePoint, ...]) -> list[str]:
    """What the table's percentages are of, and what its signs mean where they occur."""
    notes = [facts.roof_sentence(analysis)]
    if any(op.flops is None or op.total_bytes is None for op in shown):
        notes.append(f"{formatting.UNKNOWN} unknown: the operator has no FLOP or no byte model.")
    if facts.any_over_peak(shown):
        notes.append(f"! {facts.OVER_PEAK}.")
    return notes


def _print_coverage(analysis: Analysis, console: Console) -> None:
    _blank(console)
    table = _grid()
    table.add_row(Text("Coverage"), _text(facts.coverage_sentence(analysis)))
    unmodelled = analysis.coverage.unmodelled
    if unmodelled:
        names = ", ".join(
            f"{op.name} ({formatting.duration(op.device_ns)})" for op in unmodelled[:5]
        )
        more = f" and {len(unmodelled) - 5} more" if len(unmodelled) > 5 else ""
        table.add_row(Text("No model"), _text(names + more))
    console.print(table)


def _print_warnings(analysis: Analysis, console: Console) -> None:
    if not analysis.warnings:
        return
    table = _grid()
    for index, warning in enumerate(analysis.warnings):
        table.add_row(Text("" if index else "Warnings", "yellow"), _text(facts.sentence(warning)))
    console.print(table)


def _grid() -> Table:
    """Labels in one column, values in the other."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, min_width=11)
    grid.add_column(overflow="fold")
    return grid


def _text(value: str, style: str = "") -> Text:
    return Text(formatting.printable(value), style)


def _blank(console: Console) -> None:
    console.print()
