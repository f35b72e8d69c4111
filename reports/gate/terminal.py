"""The verdicts of a gate in a terminal."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpuprof.reports.comparison.headline import one_process_sentence
from gpuprof.reports.formatting import printable
from gpuprof.reports.gate import sentences
from gpuprof.reports.gate.first_look import first_look
from gpuprof.reports.gate.reasons import last_words, reasons
from gpuprof.roofline.gate.judgement import Verdict
from gpuprof.roofline.gate.result import GateResult
from gpuprof.roofline.gate.series import TIME

_STYLES: dict[Verdict, str] = {
    "PASS": "green",
    "IMPROVED": "bold green",
    "REGRESSED": "bold red",
    "ERROR": "bold red",
    "INCOMPARABLE": "magenta",
    "INCONCLUSIVE": "yellow",
    "CHANGED-KERNEL": "cyan",
}
# Columns from which whole intervals fit beside names.
_WIDE = 110


def render_gate(result: GateResult, console: Console, output: Path) -> None:
    """Print `result`, whose files are in `output`."""
    verdict = sentences.outcome(result)
    style = "bold green" if result.exit_code == 0 else "bold red"
    undecided = result.exit_code == 0 and verdict in ("ADVISORY", "INCONCLUSIVE")
    console.print(Text(sentences.headline(result), "bold yellow" if undecided else style))
    console.print(Text(printable(sentences.sides(result)), "dim"))
    if look := first_look(result):
        console.print(Text(look, "bold"))
    console.print(_table(result, console.width))
    _print_remarks(result, console)
    _print_last_words(result, console)
    _print_explanations(result, console)
    for warning in sentences.warnings(result):
        console.print(Text(f"! {printable(warning)}", "yellow"))
    left = "The result is" if result.tool else "Results, captures and logs are"
    console.print(Text(f"{left} in {output}", "dim"))


def _table(result: GateResult, width: int) -> Table:
    """The verdicts that count; a narrow terminal has short intervals and no column of Detects."""
    wide = width >= _WIDE
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("Benchmark", overflow="fold")
    table.add_column("Verdict", no_wrap=True)
    table.add_column("Base → head", justify="right", no_wrap=True)
    table.add_column("Change [95 %]" if wide else "Change", justify="right", no_wrap=True)
    if wide:
        table.add_column("Detects", justify="right", no_wrap=True)
    for row in sentences.rows([j for j in result.judgements if sentences.held(j)]):
        judgement = row.judgement
        name = Text(printable(judgement.benchmark))
        if judgement.metric != TIME:
            name.append(f" {printable(judgement.metric.name)}", "bold")
        verdict = Text(sentences.verdict_word(judgement), _STYLES[judgement.verdict])
        change = (row.change, row.detectable) if wide else (row.short_change,)
        table.add_row(name, verdict, row.figures, *change)
    return table


def _print_remarks(result: GateResult, console: Console) -> None:
    """The sentence of each verdict that is not plain, and what changed without a budget."""
    for row in sentences.rows(result.judgements):
        judgement = row.judgement
        if sentences.plain(judgement):
            continue
        style = _STYLES[judgement.verdict] if sentences.held(judgement) else "dim"
        console.print(Text(sentences.remark(judgement), style))


def _print_explanations(result: GateResult, console: Console) -> None:
    for explanation in result.explanations:
        why = reasons(explanation, result)
        console.print(Text(f"\n{printable(why.title)}", "bold"))
        console.print(Text(one_process_sentence(explanation.comparison)))
        if why.note:
            console.print(Text(printable(why.note), "dim"))
        _print_indented(why.lines, console)


def _print_last_words(result: GateResult, console: Console) -> None:
    for words in last_words(result):
        console.print(Text(f"\n{printable(words.title)}", "bold"))
        _print_indented(words.lines, console)


def _print_indented(lines: tuple[str, ...], console: Console) -> None:
    for line in lines:
        console.print(Padding(Text(printable(line)), (0, 0, 0, 2), expand=False))
