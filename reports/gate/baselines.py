"""Stored baselines as a table."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from gpuprof.reports.formatting import UNKNOWN, date, printable
from gpuprof.reports.json_answers.of_gates import StoredBaseline

_COLUMNS = ("Name", "Measured", "Commit", "Device", "Processes", "Blessed")


def baseline_table(baselines: Sequence[StoredBaseline]) -> Table:
    """One row a baseline."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for column in _COLUMNS:
        number, short = column == "Processes", column in ("Measured", "Commit")
        table.add_column(
            column, justify="right" if number else "left", overflow="fold", no_wrap=short
        )
    for row in baselines:
        blessed = UNKNOWN if row.blessed_by is None else f"{row.blessed_by}: {row.blessed_because}"
        table.add_row(
            Text(row.name + (" (pinned)" if row.pinned else "")),
            date(row.created_ns),
            (row.commit or UNKNOWN)[:7],
            Text(printable(", ".join(row.devices) or UNKNOWN)),
            str(row.processes),
            Text(printable(blessed)),
        )
    return table
