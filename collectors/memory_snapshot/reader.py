"""Reads a file that torch.cuda.memory._dump_snapshot wrote into a capture."""

import re
from pathlib import Path
from typing import Any, Final

import polars as pl

from gpuprof._version import __version__
from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.data_pickle import data_of
from gpuprof.collectors.files.source import whole_content
from gpuprof.collectors.manifest import Manifest, ProcessInfo
from gpuprof.collectors.memory_segments import Stacks, block_rows
from gpuprof.collectors.memory_snapshot.history import history_of

SOURCE: Final = "memory snapshot"
# Its objects take about ten times as much memory.
_LARGEST_BYTES: Final = 1 << 30
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_KEYS: Final = re.compile(rb"segments.*(?:device_traces|total_size)", re.DOTALL)
_FORM: Final = "a snapshot of torch.cuda.memory._dump_snapshot"
_OF_ANOTHER_FORM: Final = (
    *(KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError),
    pl.exceptions.PolarsError,
)


def recognises(start: bytes) -> bool:
    """Whether a file that begins with `start` is a pickle with the keys of a snapshot."""
    return _PICKLE.match(start) is not None and _KEYS.search(start) is not None


def read(path: Path) -> Capture:
    """Read one snapshot, plain or gzip: what is allocated, and the history where it was recorded.

    It is not unpickled: only data is read (`gpuprof.collectors.files.data_pickle`).
    Raises `CaptureError` where the file holds anything else, is damaged or larger than 1 GiB.
    """
    snapshot = _data(path)
    try:
        tables = _tables(snapshot)
        frames = {name: _frame(name, rows) for name, rows in tables.items()}
    except _OF_ANOTHER_FORM as error:
        raise CaptureError(path, "its content has another form", expected=_FORM) from error
    if not tables["memory_blocks"] and not tables["allocations"]:
        raise CaptureError(
            path,
            "no memory of a GPU in it",
            remedy="take the snapshot while the program uses its GPU",
        )
    times = [time for name in tables for time in frames[name]["time_ns"].to_list()[-1:]]
    process = ProcessInfo(warnings=_warnings(tables))
    manifest = Manifest(
        tool_version=__version__, source=SOURCE, title=path.name, created_ns=max(times)
    )
    return Capture(manifest, (process,), **frames)


def _data(path: Path) -> Any:
    content = whole_content(
        path,
        _LARGEST_BYTES,
        what="a snapshot",
        remedy="record a shorter history (max_entries of _record_memory_history)",
    )
    return data_of(path, content, expected=_FORM)


def _tables(snapshot: Any) -> dict[str, list[dict[str, Any]]]:
    stacks = Stacks()
    segments = snapshot["segments"]
    histories = [
        history_of(entries, segments, device, stacks)
        for device, entries in enumerate(snapshot.get("device_traces", ()))
        if entries
    ]
    allocations = [row for history in histories for row in history.allocations]
    failures = [row for history in histories for row in history.failures]
    last_ns = max((row["time_ns"] for row in (*allocations, *failures)), default=0)
    blocks = block_rows(segments, moment="snapshot", time_ns=last_ns, stacks=stacks)
    return {"allocations": allocations, "out_of_memory": failures, "memory_blocks": blocks}


def _frame(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame([{"rank": 0, **row} for row in rows], schema=schema.TABLES[name])


def _warnings(tables: dict[str, list[dict[str, Any]]]) -> tuple[str, ...]:
    if any(row["stack"] for rows in tables.values() for row in rows):
        return ()
    return (
        "no stacks in this snapshot: what is allocated has no lines (record with "
        "torch.cuda.memory._record_memory_history(stacks='python') from the start)",
    )
