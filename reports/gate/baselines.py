"""Stored baselines as a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from gpuprof.reports.formatting import UNKNOWN, date, printable

_COLUMNS = ("Name", "Measured", "Commit", "Device", "Processes", "Blessed")


@dataclass(frozen=True)
class BaselineRow:
    """What the table says of one baseline."""

    name: str
    pinned: bool
    created_ns: int
    commit: str | None
    devices: tuple[str, ...]
    processes: int
    # Who accepted its level last, and why; None where nobody did.
    blessed_by: str | None = None
    reason: str = ""


def baseline_table(baselines: Sequence[BaselineRow]) -> Table:
    """One row a baseline."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for column in _COLUMNS:
        number, short = column == "Processes", column in ("Measured", "Commit")
        table.add_column(
            column, justify="right" if number else "left", overflow="fold", no_wrap=short
        )
    for row in baselines:
        blessed = UNKNOWN if row.blessed_by is None else f"{row.blessed_by}: {row.reason}"
        table.add_row(
            Text(row.name + (" (pinned)" if row.pinned else "")),
            date(row.created_ns),
            (row.commit or UNKNOWN)[:7],
            Text(printable(", ".join(row.devices) or UNKNOWN)),
            str(row.processes),
            Text(printable(blessed)),
        )
    return table
