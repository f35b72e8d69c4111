"""What a machine offers to a profiler, as a table."""

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from gpuprof.reports.formatting import printable
from gpuprof.roofline.machine.check import Check, State

_STYLES: Final[dict[State, str]] = {"yes": "green", "partly": "yellow", "no": "red"}


def checks_table(checks: Sequence[Check]) -> Table:
    """One row a check, one section a group; remedies stand below what is missing."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    group = ""
    for check in checks:
        if check.group != group:
            if group:
                table.add_row()
            group = check.group
            table.add_row("", Text(group, style="bold"))
        finding = Text(printable(check.finding))
        if check.remedy:
            finding.append(f"\n-> {printable(check.remedy)}", style="italic")
        table.add_row(
            Text(f"{check.state:>6}", style=_STYLES[check.state]),
            Text(f"  {printable(check.name)}"),
            finding,
        )
    return table
