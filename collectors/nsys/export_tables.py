"""The tables of an export of Nsight Systems, whichever kind of export holds them.

Tables are created only where there are rows for them, columns come and go with the version, and
newer exports put _V2, _V3 after a table's name. So everything is looked up by name and whatever is
absent reads as null.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import polars as pl

ColumnTypes: TypeAlias = Mapping[str, type[int] | type[str]]


class Export(ABC):
    """Typed reads from one export. Values of another type than asked for read as null."""

    def __init__(self, path: Path) -> None:
        # Its name for people.
        self.path = path

    @property
    @abstractmethod
    def tables(self) -> frozenset[str]:
        """Names of the tables, without version suffix."""

    @abstractmethod
    def read(self, table: str, columns: ColumnTypes) -> pl.DataFrame:
        """The rows of `table`: int columns as Int64, str columns as String.

        An absent table has no rows, an absent column is null. Raises `CaptureError` where the file
        is damaged.
        """

    @property
    @abstractmethod
    def most_text_bytes(self) -> int:
        """What all rows of a column together may have: rows hold numbers of texts."""

    def __contains__(self, table: str) -> bool:
        return table in self.tables

    def strings(self) -> pl.DataFrame:
        """What the ids in columns such as `nameId` stand for: columns id and value."""
        frame = self.read("StringIds", {"id": int, "value": str})
        return frame.drop_nulls().unique("id", keep="first", maintain_order=True)

    def labels(self, enumeration: str) -> dict[int, str]:
        """An ENUM_ table as id -> label; empty in exports from before 2022."""
        frame = self.read(enumeration, {"id": int, "label": str}).drop_nulls()
        return dict(frame.iter_rows())


def schema_of(columns: ColumnTypes) -> pl.Schema:
    """The types in which `columns` are read."""
    return pl.Schema(
        {name: pl.Int64() if kind is int else pl.String() for name, kind in columns.items()}
    )


def resolved_versions(names: Iterable[str]) -> dict[str, str]:
    """The tables `names` by their name without version: the newest, or the one without any."""
    names = list(names)
    versions: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        base, _, version = name.rpartition("_V")
        if base and version.isdecimal():
            versions.setdefault(base, []).append((int(version), name))
    resolved = {base: max(found)[1] for base, found in versions.items()}
    # An unsuffixed table wins over its versions.
    return resolved | {name: name for name in names}
