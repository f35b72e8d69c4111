"""`gpuprof doctor`."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.table import Table

    from gpuprof.profiler.machine.checks import Check

_STYLES: Final[dict[str, str]] = {"yes": "green", "partly": "yellow", "no": "red"}


class DoctorCommand:
    """Say what this machine offers to a profiler, and how to get what is missing.

    Looks at the GPUs and their driver, at what torch was built with (kineto,
    CUPTI), at what NVML answers, for Nsight Systems and Nsight Compute and the
    permission to read GPU counters, and at the Python packages. Nothing is
    changed; the exit code is 0 whatever is missing.
    """

    name = "doctor"
    summary = "say what this machine offers and how to get what is missing"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""
        parser.add_argument("--json", action="store_true", help="print the checks as JSON")

    def run(self, arguments: argparse.Namespace) -> int:
        """Run all checks and print them."""
        import msgspec
        from rich.console import Console

        from gpuprof.profiler.machine.checks import all_checks

        checks = all_checks()
        if arguments.json:
            print(msgspec.json.format(msgspec.json.encode(checks), indent=1).decode())
        else:
            Console().print(checks_table(checks))
        return 0


def checks_table(checks: "Sequence[Check]") -> "Table":
    """One row a check, one section a group; remedies stand below what is missing."""
    from rich.table import Table
    from rich.text import Text

    from gpuprof.reports.formatting import printable

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
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
