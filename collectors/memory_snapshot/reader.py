"""Reads a file that torch.cuda.memory._dump_snapshot wrote into a capture."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import polars as pl

from gpuprof._version import __version__
from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.data_pickle import data_of
from gpuprof.collectors.files.source import ByteSource
from gpuprof.collectors.manifest import Manifest, ProcessInfo
from gpuprof.collectors.memory_segments import Stacks, block_rows, number
from gpuprof.collectors.memory_snapshot.history import BlockHistory
from gpuprof.collectors.table_rows import TableRows

SOURCE: Final = "memory snapshot"
_REMEDY: Final = "record a shorter history (max_entries of _record_memory_history)"
# In the file, of what becomes a row: its keys alone are two bytes each.
_LEAST_BYTES: Final = 24
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
    Raises `CaptureError` where the file holds anything else, is damaged, or would take more memory
    than `gpuprof.collectors.files.memory_limit.MOST_BYTES`.
    """
    source, stacks = ByteSource(path), Stacks()
    history = BlockHistory(stacks)
    snapshot = data_of(source, expected=_FORM, remedy=_REMEDY, replacing=history)
    try:
        frames = _frames(snapshot, history, stacks, most=source.bytes_out // _LEAST_BYTES)
    except _OF_ANOTHER_FORM as error:
        raise CaptureError(path, "its content has another form", expected=_FORM) from error
    if frames["memory_blocks"].is_empty() and frames["allocations"].is_empty():
        raise CaptureError(
            path,
            "no memory of a GPU in it",
            remedy="take the snapshot while the program uses its GPU",
        )
    process = ProcessInfo(warnings=_warnings(frames))
    manifest = Manifest(
        tool_version=__version__, source=SOURCE, title=path.name, created_ns=_last_ns(frames)
    )
    return Capture(manifest, (process,), **frames)


def _frames(
    snapshot: Any, history: BlockHistory, stacks: Stacks, *, most: int
) -> dict[str, pl.DataFrame]:
    """The tables of `snapshot` and its history, with at most `most` blocks."""
    segments = snapshot["segments"]
    rows = TableRows("memory_blocks", most)
    for row in block_rows(segments, moment="snapshot", time_ns=0, stacks=stacks):
        rows.add({"rank": 0, **row})
    blocks = rows.frame()
    histories = _histories(snapshot, history, blocks)
    at_the_end = pl.lit(_last_ns(histories), pl.Int64).alias("time_ns")
    return {**histories, "memory_blocks": blocks.with_columns(at_the_end)}


def _histories(
    snapshot: Any, history: BlockHistory, blocks: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """What each device's entries tell, the oldest first."""
    reserved: Counter[int] = Counter()
    for segment in snapshot["segments"]:
        reserved[segment["device"]] += number(segment["total_size"])
    live = blocks.filter(pl.col("state") == "allocated").group_by("device")
    allocated = dict(live.agg(pl.col("requested").sum()).iter_rows())
    parts = {name: [schema.empty(name)] for name in ("allocations", "out_of_memory")}
    traces = snapshot.get("device_traces", ())
    counts = [len(entries) for entries in traces]
    # One list may stand for many devices, and what is no entry for one.
    if sum(counts) != len(history) or any(entry is not None for each in traces for entry in each):
        raise ValueError("other entries than those of the devices")
    for device, count in enumerate(counts):
        if not count:
            continue
        tables = history.tables(
            sum(counts[:device]),
            count,
            device=device,
            allocated=allocated.get(device, 0),
            reserved=reserved[device],
        )
        for name, table in tables.items():
            parts[name].append(table)
    return {name: pl.concat(of_devices) for name, of_devices in parts.items()}


def _last_ns(frames: dict[str, pl.DataFrame]) -> int:
    """The end of the history; 0 without one."""
    ends = [frames[name]["time_ns"].max() for name in ("allocations", "out_of_memory")]
    return max((end for end in ends if isinstance(end, int)), default=0)


def _warnings(frames: dict[str, pl.DataFrame]) -> tuple[str, ...]:
    if any(frame["stack"].fill_null("").ne("").any() for frame in frames.values()):
        return ()
    return (
        "no stacks in this snapshot: what is allocated has no lines (record with "
        "torch.cuda.memory._record_memory_history(stacks='python') from the start)",
    )
