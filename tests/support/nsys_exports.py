"""Exports of Nsight Systems made in a test: from a capture, or with rows in another order."""

import random
import sqlite3
from pathlib import Path

import polars as pl

from gpuprof.collectors.capture import Capture

_HOST = 1 << 48
_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
_MEMORY_KINDS = {"Pageable": 0, "Pinned": 1, "Device": 2}
_TABLES = """
CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME(utcEpochNs INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, "end" INT, deviceId INT, contextId INT,
    streamId INT, correlationId INT, globalPid INT, demangledName INT, gridX INT, gridY INT,
    gridZ INT, blockX INT, blockY INT, blockZ INT, registersPerThread INT,
    staticSharedMemory INT, dynamicSharedMemory INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INT, "end" INT, deviceId INT, contextId INT,
    streamId INT, correlationId INT, globalPid INT, bytes INT, copyKind INT, srcKind INT,
    dstKind INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET(start INT, "end" INT, deviceId INT, contextId INT,
    streamId INT, correlationId INT, globalPid INT, bytes INT, memKind INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, "end" INT, globalTid INT,
    correlationId INT, nameId INT);
CREATE TABLE NVTX_EVENTS(start INT, "end" INT, eventType INT, text TEXT, globalTid INT,
    textId INT, domainId INT);
"""
MARK, PUSH_POP, START_END = 34, 59, 60
# Of three marks at a step. After the first one something else had the core.
_MARKS_TOOK_NS = (70_000, 5_000, 6_000)
_INTERRUPTED_NS = 50_000


def write_export(
    capture: Capture, path: Path, *, session_ns: int, late_ns: int = 0, process: int | None = None
) -> Path:
    """The device's work and the launches of a capture, as nsys would have recorded them.

    Its session starts at `session_ns` of the capture's clock, and its clock is `late_ns` wrong. At
    each profiled step gpuprof marks the time and a range. Names of copies are as Kineto's.
    """
    process = process or capture.processes[0].process or 1
    own = _HOST | process << 24
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts) + 1)

    def at(unix_ns: int) -> int:
        return unix_ns - session_ns

    connection = sqlite3.connect(path)
    connection.executescript(_TABLES)
    connection.execute(
        "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (session_ns + late_ns,)
    )
    for row in capture.kernels.iter_rows(named=True):
        stream = (
            *(at(row["start_ns"]), at(row["end_ns"]), row["device"], row["context"] or 1),
            *(row["stream"], row["correlation"], own),
        )
        if row["kind"] == "memcpy":
            direction, source, target = _copy(row["name"])
            _insert(connection, "MEMCPY", (*stream, row["bytes"], direction, source, target))
        elif row["kind"] == "memset":
            _insert(connection, "MEMSET", (*stream, row["bytes"], 2))
        else:
            size = [row[f"{what}_{axis}"] for what in ("grid", "block") for axis in "xyz"]
            used = (row["registers"], row["shared_memory"], 0)
            _insert(connection, "KERNEL", (*stream, text(row["name"]), *size, *used))
    for row in capture.launches.iter_rows(named=True):
        thread = own | row["thread"]
        values = (at(row["start_ns"]), at(row["end_ns"]), thread, row["correlation"])
        _insert(connection, "RUNTIME", (*values, text(row["name"])))
    steps = capture.steps.filter(pl.col("phase") == "profiled")
    for start_ns, end_ns in steps.select("start_ns", "end_ns").iter_rows():
        # nsys notes the time right before a call returns; what is read next is the next one's.
        for place, took_ns in enumerate(_MARKS_TOOK_NS):
            read_ns = start_ns + sum(_MARKS_TOOK_NS[:place]) - sum(_MARKS_TOOK_NS)
            noted_ns = read_ns + (took_ns if place else took_ns - _INTERRUPTED_NS)
            _mark(connection, own | process, at(noted_ns), f"gpuprof clock {read_ns}")
        _range(connection, own | process, at(start_ns), at(end_ns), "gpuprof step")
    connection.executemany(
        "INSERT INTO StringIds VALUES (?, ?)", [(i, t) for t, i in texts.items()]
    )
    connection.commit()
    connection.close()
    return path


def shuffled(source: Path, target: Path, seed: int) -> Path:
    """A copy of an export whose tables have their rows in another order."""
    connection = sqlite3.connect(source)
    copy = sqlite3.connect(target)
    generator = random.Random(seed)
    tables = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    for name, statement in tables.fetchall():
        # With an integer as its key a table has the order of that, whatever is inserted first.
        copy.execute(
            statement.replace("INTEGER NOT NULL PRIMARY KEY", "INT").replace(
                "INTEGER PRIMARY KEY", "INT"
            )
        )
        rows = connection.execute(f"SELECT * FROM {name}").fetchall()
        generator.shuffle(rows)
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            copy.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    copy.commit()
    copy.close()
    connection.close()
    return target


def as_parquet(source: Path, folder: Path) -> Path:
    """The tables of an SQLite export as nsys writes them with --type parquetdir."""
    folder.mkdir()
    connection = sqlite3.connect(source)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
        cursor = connection.execute(f"SELECT * FROM {name}")
        columns = [column[0] for column in cursor.description]
        frame = pl.DataFrame(cursor.fetchall(), columns, orient="row", infer_schema_length=None)
        # Ids of processes and threads are unsigned there.
        unsigned = [column for column in columns if column in ("globalPid", "globalTid")]
        frame.with_columns(pl.col(unsigned).cast(pl.Int64).reinterpret(signed=False)).write_parquet(
            folder / f"{name}.parquet"
        )
    connection.close()
    return folder


def _insert(connection: sqlite3.Connection, kind: str, values: tuple[object, ...]) -> None:
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_{kind} VALUES ({marks})", values)


def _mark(connection: sqlite3.Connection, thread: int, time: int, text: str) -> None:
    values = (time, None, MARK, text, thread, None, 0)
    connection.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def _range(connection: sqlite3.Connection, thread: int, start: int, end: int, text: str) -> None:
    values = (start, end, START_END, text, thread, None, 0)
    connection.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def _copy(name: str) -> tuple[int, int, int]:
    """The kinds of "Memcpy HtoD (Pinned -> Device)"."""
    _, direction, source, _, target = name.replace("(", "").replace(")", "").split()
    return _COPY_KINDS[direction], _MEMORY_KINDS[source], _MEMORY_KINDS[target]
