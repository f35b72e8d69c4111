"""An explanation of one operator or kernel, in a terminal."""

from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Facts
from gpuprof.reports.explanation_facts import layer_facts, unknown_facts, work_title
from gpuprof.reports.figures import per_step
from gpuprof.reports.fused_operators import fused_facts
from gpuprof.reports.point_rows import point_figures
from gpuprof.reports.terminal import facts_table
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.explain.explain import WorkExplanation

_LEVELS: Final = {"op": "operator", "kernel": "kernel"}
# Figures of a row that the layers show better.
_SHOWN_ELSEWHERE: Final = (
    *("Name", "Name says", "Operator", "Phase", "Launch", "Shapes"),
    *("Calls", "Device time"),
)


def render_explanation(explanation: WorkExplanation, console: Console) -> None:
    """Print what is known, one layer after the other."""
    point, steps = explanation.point, explanation.profiled_steps
    console.print(Text(formatting.printable(work_title(point)), "bold"))
    elsewhere = tuple(fused_facts(point))
    figures = tuple(
        fact
        for fact in point_figures(point, steps)
        if fact.label not in _SHOWN_ELSEWHERE and fact not in elsewhere
    )
    for facts in (
        *layer_facts(point, explanation.layers, steps),
        Facts(figures, "Work and roof"),
        *unknown_facts(explanation.layers),
    ):
        console.print()
        console.print(Text(formatting.printable(facts.title), "bold"))
        console.print(facts_table(facts.facts))


def render_matches(
    analysis: Analysis, found: Sequence[RooflinePoint], console: Console, *, most: int
) -> None:
    """Print what a name may mean, numbered as `--pick` takes them, and how to choose."""
    steps = analysis.steps.profiled
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for head in ("N", "ms", "Share", "Calls"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("What", overflow="fold")
    for number, point in enumerate(found[:most], 1):
        table.add_row(
            str(number),
            formatting.milliseconds(per_step(steps, point.device_ns)),
            formatting.percent(point.device_fraction),
            formatting.count(per_step(steps, point.calls)),
            Text(formatting.printable(f"{_LEVELS[point.level]} {work_title(point)}")),
        )
    console.print(Text(formatting.counted(len(found), "match", "matches")))
    console.print(table)
    if len(found) > most:
        console.print(Text(f"and {len(found) - most} more; a longer name leaves fewer"))
    console.print(Text("Choose one with --pick N."))
