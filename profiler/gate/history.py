"""What gates measured over time, in an SQLite file: one row a process and metric, only added to."""

import hashlib
import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuprof.collectors.errors import CommandError
from gpuprof.roofline.gate.history import Value
from gpuprof.roofline.gate.measurement import COUNTERS, FIGURES, Measurement
from gpuprof.roofline.gate.result import GateResult
from gpuprof.roofline.gate.series import TIME, ProcessRun
from gpuprof.roofline.gate.suite import MeasuredProcess
from gpuprof.roofline.machine.environment import strict_key

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


def values_of(
    result: GateResult, *, commit: str | None = None, branch: str | None = None
) -> tuple[Value, ...]:
    """Every metric of every usable process of the head side of a gate.

    `commit` and `branch` are of the head; a commit that the result has goes first.
    """
    fingerprint = result.head.fingerprint
    devices = ", ".join(dict.fromkeys(device.name for device in fingerprint.devices))
    gate = hashlib.sha256(msgspec.json.encode((result.created_ns, result.processes))).hexdigest()
    return tuple(
        Value(
            gate=gate[:16],
            measured_ns=result.created_ns,
            commit=result.head.commit or commit,
            branch=branch,
            fingerprint=strict_key(fingerprint),
            device=devices,
            benchmark=benchmark,
            metric=metric,
            unit=unit,
            pair=process.pair,
            value=value,
        )
        for process in result.processes
        if process.side == "B" and not process.failure and not process.contamination
        for benchmark, measured in process.measurements.items()
        for metric, unit, value in _metrics(process, measured)
    )


def _metrics(process: MeasuredProcess, measured: Measurement) -> Iterator[tuple[str, str, float]]:
    run = ProcessRun(
        side=process.side,
        pair=process.pair,
        samples=tuple(map(float, measured.samples_ns)),
        discarded=measured.discarded,
    )
    if run.kept and not run.damage:
        yield TIME.name, TIME.unit, math.exp(run.log_value)
    for name, value in measured.figures.items():
        yield name, FIGURES[name].metric.unit if name in FIGURES else "", value
    for name, count in measured.counters.items():
        if name not in measured.figures:
            yield name, COUNTERS.get(name, ""), float(count)


@dataclass(frozen=True)
class History:
    """One file. Every method raises `CommandError` (exit 2) where it is no history of ours."""

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
            return tuple(Value(**dict(zip(_COLUMNS, row, strict=True))) for row in rows)

    @contextmanager
    def _open(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        if not create and not self.file.is_file():
            raise CommandError(
                f"there is no history {self.file}; make one with `gpuprof history add`",
                exit_code=2,
            )
        try:
            database = sqlite3.connect(self.file)
        except sqlite3.Error as error:
            raise CommandError(f"{self.file}: {error}", exit_code=2) from error
        try:
            # Commits where the block ends well.
            with database:
                self._prepare(database)
                yield database
        except sqlite3.Error as error:
            raise CommandError(f"{self.file} is no history: {error}", exit_code=2) from error
        finally:
            database.close()

    def _prepare(self, database: sqlite3.Connection) -> None:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == 0 and tables == 0:
            database.executescript(_CREATE)
            return
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise CommandError(f"{self.file} is another program's database", exit_code=2)
        if version > HISTORY_SCHEMA_VERSION:
            raise CommandError(
                f"{self.file} has schema version {version}; upgrade gpuprof to read it", exit_code=2
            )
