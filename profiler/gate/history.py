"""What gates measured over time, in an SQLite file: one row a process and metric, only added to."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuprof.collectors.errors import CommandError, problem_of
from gpuprof.collectors.files.writing import refuse_unwritable
from gpuprof.collectors.schema_version import refuse_newer
from gpuprof.roofline.gate.history import Value

HISTORY_SCHEMA_VERSION = 1
# SQLite keeps it in the file's head: that the file is ours ("gpup").
_APPLICATION = 0x67707570
_COLUMNS = Value.__struct_fields__
_CREATE = f"""
CREATE TABLE measurements (
    gate TEXT NOT NULL,
    measured_ns INTEGER NOT NULL,
    "commit" TEXT,
    branch TEXT,
    fingerprint TEXT NOT NULL,
    device TEXT NOT NULL,
    benchmark TEXT NOT NULL,
    metric TEXT NOT NULL,
    unit TEXT NOT NULL,
    pair INTEGER NOT NULL,
    value REAL NOT NULL,
    UNIQUE (gate, benchmark, metric, pair)
);
CREATE TRIGGER no_update BEFORE UPDATE ON measurements
BEGIN SELECT RAISE(ABORT, 'the history is only added to'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON measurements
BEGIN SELECT RAISE(ABORT, 'the history is only added to'); END;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {HISTORY_SCHEMA_VERSION};
"""
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)


@dataclass(frozen=True)
class History:
    """One file.

    Every method raises `CommandError`: exit 2 where it is no history of ours, 1 where the system
    lets nobody read or write it.
    """

    file: Path

    def add(self, values: Sequence[Value]) -> int:
        """Add what is not there yet. Returns how many rows that were."""
        with self._open(create=True) as database:
            before = database.total_changes
            places = ", ".join("?" for _ in _COLUMNS)
            database.executemany(
                f"INSERT OR IGNORE INTO measurements ({_NAMES}) VALUES ({places})",
                [tuple(getattr(value, name) for name in _COLUMNS) for value in values],
            )
            return database.total_changes - before

    def values(self, *, metric: str | None = None, branch: str | None = None) -> tuple[Value, ...]:
        """All rows, or those of one metric and one branch, in the order in which they came."""
        wanted = [(f"{name} = ?", v) for name, v in (("metric", metric), ("branch", branch)) if v]
        where = f" WHERE {' AND '.join(condition for condition, _ in wanted)}" if wanted else ""
        with self._open(create=False) as database:
            rows = database.execute(
                f"SELECT {_NAMES} FROM measurements{where} ORDER BY rowid", [v for _, v in wanted]
            )
            # The columns' types are SQLite's, which stores anything in any.
            return tuple(
                msgspec.convert(dict(zip(_COLUMNS, row, strict=True)), Value) for row in rows
            )

    @contextmanager
    def _open(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        if not create and not self.file.is_file():
            raise CommandError(
                f"there is no history {self.file}; make one with `gpuprof history add`",
                exit_code=2,
            )
        is_new = create and not self.file.exists()
        if create:
            refuse_unwritable(self.file, option="--db")
        try:
            database = sqlite3.connect(self.file)
        except sqlite3.Error as error:
            raise CommandError(f"{self.file}: {problem_of(error)}", exit_code=2) from error
        try:
            # Commits where the block ends well.
            with database:
                self._prepare(database)
                yield database
        # The disk is full, or another process has locked it.
        except sqlite3.OperationalError as error:
            raise CommandError(f"{self.file}: {problem_of(error)}") from error
        # UnicodeDecodeError: SQLite's own messages quote the file's bytes.
        except (sqlite3.Error, msgspec.ValidationError, UnicodeDecodeError) as error:
            message = f"{self.file} is no history: {problem_of(error)}"
            raise CommandError(message, exit_code=2) from error
        finally:
            database.close()
            # What a full disk leaves of a new one.
            if is_new and self.file.is_file() and self.file.stat().st_size == 0:
                self.file.unlink()

    def _prepare(self, database: sqlite3.Connection) -> None:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == 0 and tables == 0:
            database.executescript(_CREATE)
            return
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise CommandError(f"{self.file} is another program's database", exit_code=2)
        refuse_newer(self.file, version, HISTORY_SCHEMA_VERSION)
