"""The SQLite file that `nsys export` writes, opened as untrusted input."""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import polars as pl

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.nsys.export_tables import Export, resolved_versions, schema_of

MAGIC = b"SQLite format 3\x00"

# Python decodes SQLite's own messages strictly, and those quote the file's bytes.
_DAMAGED = (sqlite3.Error, UnicodeDecodeError)
_BATCH_ROWS = 100_000
# A row of an SQLite table takes at least two bytes of header and two of cell pointer. A damaged or
# hostile file whose pages form a cycle is stopped by this.
_LEAST_BYTES_PER_ROW = 4
_LONGEST_TEXT = 65_536
# Some tables are read more than once.
_TEXT_PER_SIZE = 4
# A row has 60 bytes, names of kernels with many templates a thousand or two.
_TEXT_OF_ROWS_PER_SIZE = 100


class Database(Export):
    """Typed reads from one export. Values of another type than asked for read as null."""

    def __init__(self, path: Path, size: int, connection: sqlite3.Connection) -> None:
        super().__init__(path)
        self._connection = connection
        self._size = size
        self._text_bytes = 0
        connection.text_factory = self._decode
        self._tables = self._resolve_tables()

    @property
    def tables(self) -> frozenset[str]:
        """See `Export`."""
        return frozenset(self._tables)

    @property
    def most_text_bytes(self) -> int:
        """See `Export`."""
        return _TEXT_OF_ROWS_PER_SIZE * self._size

    def read(self, table: str, columns: Mapping[str, type[int] | type[str]]) -> pl.DataFrame:
        """See `Export`."""
        schema = schema_of(columns)
        if table not in self._tables:
            return pl.DataFrame(schema=schema)
        actual = self._tables[table]
        try:
            present = {row[1] for row in self._connection.execute(f"PRAGMA table_info({actual})")}
            selected = ", ".join(
                _typed(name, kind) if name in present else "NULL" for name, kind in columns.items()
            )
            cursor = self._connection.execute(f"SELECT {selected} FROM {actual}")
            return self._fetch(cursor, table, schema)
        except _DAMAGED as error:
            raise _damaged(self.path, problem_of(error), f"table {table}") from error

    def _fetch(self, cursor: sqlite3.Cursor, table: str, schema: pl.Schema) -> pl.DataFrame:
        batches: list[pl.DataFrame] = []
        rows_read = 0
        while rows := cursor.fetchmany(_BATCH_ROWS):
            rows_read += len(rows)
            if rows_read > self._size // _LEAST_BYTES_PER_ROW:
                raise _damaged(self.path, "more rows than its size allows", f"table {table}")
            batches.append(pl.DataFrame(rows, schema=schema, orient="row"))
        return pl.concat(batches) if batches else pl.DataFrame(schema=schema)

    def _decode(self, text: bytes) -> str:
        # Pages shared by many rows could otherwise make a small file's text arbitrarily large.
        self._text_bytes += len(text)
        if self._text_bytes > _TEXT_PER_SIZE * self._size:
            raise _damaged(self.path, "more text than its size allows")
        return text.decode("utf-8", "replace")

    def _resolve_tables(self) -> dict[str, str]:
        try:
            # Only ordinary tables: a view or virtual table would run code of the file's choosing.
            names = [
                name
                for (name,) in self._connection.execute(
                    "SELECT name FROM sqlite_master"
                    " WHERE type = 'table' AND sql LIKE 'CREATE TABLE%' LIMIT 10000"
                )
                if isinstance(name, str) and re.fullmatch(r"\w+", name)
            ]
        except _DAMAGED as error:
            raise _damaged(self.path, problem_of(error)) from error
        return resolved_versions(names)


@contextmanager
def opened(path: Path, file: Path) -> Iterator[Database]:
    """The SQLite file `file`, read-only; `path` is its name for people.

    Raises `CaptureError` where it is not an SQLite file.
    """
    try:
        # immutable: no lock and no journal file is written beside somebody's recording.
        connection = sqlite3.connect(
            f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1", uri=True
        )
    except _DAMAGED as error:
        raise CaptureError(path, f"could not be opened: {problem_of(error)}") from error
    try:
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA query_only = ON")
        except _DAMAGED as error:
            raise _damaged(path, problem_of(error)) from error
        yield Database(path, file.stat().st_size, connection)
    finally:
        connection.close()


def _damaged(path: Path, problem: str, place: str = "") -> CaptureError:
    return CaptureError(
        path,
        f"damaged SQLite file: {problem}",
        place=place,
        remedy="export the report again: nsys export --type sqlite REPORT.nsys-rep",
    )


def _typed(column: str, kind: type[int] | type[str]) -> str:
    # SQLite columns hold any type; asking for it here keeps a stray one out of typed columns.
    if kind is int:
        return f'CASE typeof("{column}") WHEN \'integer\' THEN "{column}" END'
    return f'CASE typeof("{column}") WHEN \'text\' THEN substr("{column}", 1, {_LONGEST_TEXT}) END'
