"""What live collectors recorded: plain data, of which tables are made elsewhere.

The library of the tables takes some tenths of a second and 13 threads to load. A program that is
recorded is spared that: the process that stores its capture makes the tables.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gpuprof.collectors.errors import reason
from gpuprof.collectors.live.script_errors import is_ours

if TYPE_CHECKING:
    import polars as pl

# Rows of one table of gpuprof.collectors.schema, as columns by name. A plug-in may have a frame.
ColumnValues: TypeAlias = Mapping[str, Sequence[object]]
Collected: TypeAlias = "Mapping[str, ColumnValues | pl.DataFrame]"


@dataclass(frozen=True)
class CollectedBy:
    """The tables of one collector, and what to say where they are none."""

    collector: str
    # What it records, in words.
    subject: str
    # Whether that says nothing about a program that uses no GPU.
    needs_gpu: bool
    tables: Collected


def table_of(name: str, collected: Collected) -> "pl.DataFrame":
    """The rows for the table `name` of the schema, whose whole numbers are rounded."""
    import polars as pl

    from gpuprof.collectors import schema

    found = collected.get(name)
    if found is None:
        return schema.empty(name)
    if not isinstance(found, pl.DataFrame):
        types = schema.TABLES[name]
        found = pl.DataFrame(
            {
                column: _whole(values) if types[column].is_integer() else values
                for column, values in found.items()
            },
            schema={column: types[column] for column in found},
        )
    return schema.conform(name, found)


def tables_of(
    parts: Iterable[CollectedBy], say: Callable[[CollectedBy, str], None]
) -> "dict[str, pl.DataFrame]":
    """The rows of all collectors by table. `say` is told why a part is none, and is left out."""
    import polars as pl

    frames: dict[str, list[pl.DataFrame]] = {}
    for part in parts:
        for name, frame in _own_tables(part, say).items():
            frames.setdefault(name, []).append(frame)
    return {name: pl.concat(found) for name, found in frames.items()}


def _own_tables(
    part: CollectedBy, say: Callable[[CollectedBy, str], None]
) -> "dict[str, pl.DataFrame]":
    try:
        return {name: table_of(name, part.tables) for name in part.tables}
    except BaseException as error:
        if not is_ours(error):
            raise
        say(part, missing_sentence(part.collector, "gave no rows", part.subject, error))
        return {}


def missing_sentence(collector: str, failing: str, subject: str, error: BaseException) -> str:
    """What a collector that is `failing` costs, and why."""
    return f"{collector} {failing}, so {subject} is missing: {reason(error)}"


def _whole(values: Sequence[object]) -> list[int | None]:
    return [round(value) if isinstance(value, (int, float)) else None for value in values]
