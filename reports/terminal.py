"""The summary in a terminal: what `gpuprof run` ends with and `gpuprof summary` prints."""

import shlex
from collections.abc import Iterable
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpuprof.reports import facts, formatting
from gpuprof.reports.measured import counters_fact
from gpuprof.reports.utilization import utilization_facts
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.classes import bottleneck_class

TOP_KERNELS = 10
# From this width on the table also has room for FLOPs, bytes and intensity.
_WIDE = 100
_BAR_CELLS = 24
# Columns that the figures beside a kernel's name need.
_FIGURES = 53
_WIDE_FIGURES = 80


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
    _print_top_kernels(analysis, console)
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
    table = facts_table(
        (
            facts.ceiling_fact(analysis),
            *facts.step_facts(analysis.steps),
            *utilization_facts(analysis),
        )
    )
    verdict = analysis.bottleneck
    evidence = facts.sentence(verdict.evidence)
    if verdict.gain_ns:
        evidence = f"{evidence} {facts.gain_sentence(verdict.gain_ns)}"
    table.add_row(
        _text("Bottleneck"),
        _text(verdict.kind, f"bold {bottleneck_class(verdict.kind).terminal}").append_text(
            _text(f"  {evidence}", "none")
        ),
    )
    console.print(table)


def facts_table(rows: Iterable[facts.Fact]) -> Table:
    """Labels in one column, values with their notes in the other."""
    table = _grid()
    for fact in rows:
        value = _text(fact.value, "bold")
        if fact.note:
            value.append_text(_text(f"  {fact.note}", "not bold dim"))
        table.add_row(_text(fact.label), value)
    return table


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
    for part in facts.step_shares(split):
        table.add_row(
            _text(part.row.part),
            formatting.duration(part.nanoseconds),
            formatting.percent(part.fraction),
            Text("█" * round(part.fraction * _BAR_CELLS), part.row.terminal),
        )
    console.print(Padding(table, (0, 0, 0, 2)))


def _print_top_kernels(analysis: Analysis, console: Console) -> None:
    if not analysis.kernels:
        return
    shown = analysis.kernels[:TOP_KERNELS]
    wide = console.width >= _WIDE
    _blank(console)
    share = formatting.percent(sum(kernel.device_fraction for kernel in shown))
    console.print(
        Text(
            f"Largest {len(shown)} of {len(analysis.kernels)} kernels by device time ({share}), "
            + ("means for one step" if analysis.steps.profiled else "totals")
        )
    )
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False, expand=False)
    # Rich would shorten the figures before a name that does not wrap.
    room = max(16, console.width - (_WIDE_FIGURES if wide else _FIGURES))
    table.add_column("Kernel", overflow="ellipsis", no_wrap=True, max_width=room)
    for head in ("Calls", "ms", "Share", "FLOP/s"):
        table.add_column(head, justify="right", no_wrap=True)
    if wide:
        for head in ("FLOPs", "Bytes", "FLOP/B"):
            table.add_column(head, justify="right", no_wrap=True)
    table.add_column("Roof", justify="right", no_wrap=True)
    table.add_column("Class", no_wrap=True)
    for kernel in shown:
        table.add_row(*_cells(analysis, kernel, wide=wide))
    console.print(table)
    for line in _table_notes(analysis, shown):
        console.print(_text(line, "dim"))


def _cells(analysis: Analysis, kernel: RooflinePoint, *, wide: bool) -> list[str | Text]:
    over = facts.is_over_peak(kernel.roof_fraction)
    work: list[str | Text] = [
        _per_step(analysis, kernel.total_flops),
        _per_step(analysis, kernel.total_bytes),
        formatting.intensity(kernel.arithmetic_intensity),
    ]
    return [
        _kernel_name(kernel),
        formatting.count(facts.per_step(analysis, kernel.calls)),
        formatting.milliseconds(facts.per_step(analysis, kernel.device_ns)),
        formatting.percent(kernel.device_fraction),
        formatting.quantity(kernel.flops_per_s, "").strip(),
        *(work if wide else []),
        Text(facts.roof_percent(kernel.roof_fraction), "bold yellow" if over else ""),
        Text(kernel.bottleneck.kind, bottleneck_class(kernel.bottleneck.kind).terminal),
    ]


def _kernel_name(kernel: RooflinePoint) -> Text:
    """The kernel, and on a second line the operator that launched it; one line where they match."""
    if kernel.op == kernel.name:
        return _text(kernel.name).append_text(_text(f" {kernel.phase}".rstrip(), "dim"))
    name = _text(formatting.kernel_name(kernel.name))
    origin = " ".join(part for part in (kernel.op, kernel.phase) if part)
    return Text("\n").join((name, _text(f"  {origin}", "dim"))) if origin else name


def _per_step(analysis: Analysis, total: int | None) -> str:
    if total is None:
        return formatting.UNKNOWN
    return formatting.quantity(facts.per_step(analysis, total), "").strip()


def _table_notes(analysis: Analysis, shown: tuple[RooflinePoint, ...]) -> list[str]:
    """What the table's percentages are of, and what its signs mean where they occur."""
    notes = [facts.roof_sentence(analysis)]
    if any(kernel.flops is None or kernel.total_bytes is None for kernel in shown):
        notes.append(f"{formatting.UNKNOWN} unknown: `gpuprof report` says why for each kernel.")
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
    if analysis.measured is not None:
        fact = counters_fact(analysis.measured)
        table.add_row(_text(fact.label), _text(f"{fact.value}: {fact.note}".rstrip(": ")))
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
