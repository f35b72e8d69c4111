"""The families of reference kernels and their versions, as tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

_COLUMNS = ("Version", "Runs on", "dtypes", "What it is")


@dataclass(frozen=True)
class VersionRow:
    """One version of a family."""

    name: str
    # Devices, then packages.
    needs: tuple[str, ...]
    dtypes: tuple[str, ...]
    summary: str


def family_table(name: str, size_form: str, versions: Sequence[VersionRow]) -> Table:
    """The versions of the family `name`; `size_form` is how its sizes are written."""
    table = Table(title=f"{name}: sizes {size_form}", title_justify="left", box=None)
    for column in _COLUMNS:
        table.add_column(column, no_wrap=column == "Version")
    for version in versions:
        needs, dtypes = ", ".join(version.needs), " ".join(version.dtypes)
        table.add_row(version.name, needs, dtypes, version.summary)
    return table
