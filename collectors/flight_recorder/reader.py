"""Reads a dump of torch's flight recorder into a capture: a pickle, or the same as JSON.

torch writes one of each rank when a collective times out (TORCH_NCCL_DUMP_ON_TIMEOUT), as
nccl_trace_rank_N. Which rank it is stands in the name alone.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from gpuprof._version import __version__
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.collective_dtypes import element_bytes
from gpuprof.collectors.communicators import ProcessGroup
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.data_pickle import data_of
from gpuprof.collectors.files.memory_limit import MOST_BYTES, json_bytes
from gpuprof.collectors.files.source import ByteSource, whole_content
from gpuprof.collectors.flight_recorder.dump import Dump, DumpedEntry, dump_of, entries_of
from gpuprof.collectors.manifest import Fingerprint, Manifest, ProcessInfo
from gpuprof.collectors.memory_segments import Stacks
from gpuprof.collectors.table_rows import TableRows

SOURCE: Final = "flight recorder"
# A recorder of 20,000 entries with stacks writes about 50 MB.
_REMEDY: Final = "record less (TORCH_FR_BUFFER_SIZE)"
# In the file, of an entry: its keys alone are two bytes each.
_LEAST_BYTES: Final = 24
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
# Of a pickle's and of a JSON's keys.
_OWN_KEY: Final = re.compile(rb"pg_config|nccl_version|comm_lib_version")
_ENTRIES: Final = re.compile(rb"entries|pg_status")
_FORM: Final = "a dump of torch's flight recorder"
_OF_ANOTHER_FORM: Final = (
    # ValueError: also of msgspec and UTF-8.
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
    pl.exceptions.PolarsError,
)
# Sizes and names of types in all entries together.
_MOST_NUMBERS: Final = 10_000_000
# Dimensions of a tensor; torch has 64 at most.
_MOST_DIMENSIONS: Final = 100
# Members of all groups together.
_MOST_RANKS: Final = 1 << 20
_PEER: Final = re.compile(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})$")


def recognises(start: bytes) -> bool:
    """Whether a file that begins with `start` is such a dump."""
    is_json = start.lstrip().startswith(b"{") and b'"traceEvents"' not in start
    if not is_json and _PICKLE.match(start) is None:
        return False
    return _OWN_KEY.search(start) is not None and _ENTRIES.search(start) is not None


def read(path: Path) -> Capture:
    """Read one dump, plain or gzip. A pickle is read as data and never loaded.

    Raises `CaptureError` where it is damaged, has another form, or would take more memory than
    `gpuprof.collectors.files.memory_limit.MOST_BYTES`.
    """
    try:
        if _PICKLE.match(next(iter(ByteSource(path)), b"")):
            source = ByteSource(path)
            data = data_of(source, expected=_FORM, remedy=_REMEDY)
            size = source.bytes_out
        else:
            content = whole_content(path, MOST_BYTES, what="a dump", remedy=_REMEDY)
            if json_bytes(content) > MOST_BYTES:
                raise CaptureError(path, "a dump that is too large", remedy=_REMEDY)
            data, size = msgspec.json.decode(content), len(content)
        dump = dump_of(data)
        groups = _told_groups(dump)
        records = _records(dump, groups, most=size // _LEAST_BYTES)
    except _OF_ANOTHER_FORM as error:
        raise CaptureError(path, "its content has another form", expected=_FORM) from error
    created_ns = records["created_ns"].max()
    process = ProcessInfo(
        rank_from="order",
        world_size=max((len(group.ranks) for group in groups.values()), default=0) or 1,
        fingerprint=Fingerprint(nccl=dump.nccl_version or dump.comm_lib_version or None),
        process_groups=tuple(groups.values()),
        warnings=_warnings(dump),
    )
    manifest = Manifest(
        tool_version=__version__,
        source=SOURCE,
        title=path.name,
        created_ns=created_ns if isinstance(created_ns, int) else 0,
    )
    return Capture(manifest, (process,), collective_records=records)


def _records(dump: Dump, groups: dict[str, ProcessGroup], *, most: int) -> pl.DataFrame:
    """A row an entry, `most` of them. Groups that entries alone name are added to `groups`."""
    stacks, budget = Stacks(), _Budget()
    rows = TableRows("collective_records", most)
    for entry in entries_of(dump):
        name, description = entry.process_group
        # A backend may tell none.
        if name and name not in groups:
            groups[name] = ProcessGroup(name=name, description=description)
        rows.add(_row(entry, stacks, budget))
    return rows.frame()


def _row(entry: DumpedEntry, stacks: Stacks, budget: "_Budget") -> dict[str, Any]:
    backend, _, name = entry.profiling_name.rpartition(":")
    peer = _PEER.match(name)
    inputs, outputs = budget.sizes(entry.input_sizes), budget.sizes(entry.output_sizes)
    dtypes = {*budget.names(entry.input_dtypes), *budget.names(entry.output_dtypes)}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    return {
        "rank": 0,
        "record": entry.record_id,
        "group": entry.process_group[0],
        "sequence": entry.sequence,
        "point_to_point": entry.is_p2p or peer is not None,
        "backend": backend or None,
        "collective": peer[1] if peer else name,
        "peer": int(peer[3]) if peer else None,
        "input_sizes": msgspec.json.encode(inputs).decode(),
        "output_sizes": msgspec.json.encode(outputs).decode(),
        "dtype": dtype,
        "message_bytes": _message_bytes(inputs, outputs, dtype),
        "created_ns": entry.time_created_ns or None,
        "started_ns": entry.time_discovered_started_ns or None,
        "completed_ns": entry.time_discovered_completed_ns or None,
        "duration_ns": _nanoseconds(entry.duration_ms),
        "state": entry.state,
        "retired": entry.retired,
        "timeout_ns": None if entry.timeout_ms is None else entry.timeout_ms * 10**6,
        "stack": stacks.text({"frames": entry.frames}),
    }


def _nanoseconds(milliseconds: float | None) -> int | None:
    if milliseconds is None or not 0 <= milliseconds < 1e12:
        return None
    return round(milliseconds * 1e6)


class _Budget:
    """Numbers and names that one dump may hold in all: lists may be shared, and copies are not."""

    def __init__(self) -> None:
        self._left = _MOST_NUMBERS

    def sizes(self, value: Any) -> list[list[int]]:
        """`value` as the sizes of tensors. Raises `ValueError` where it has another form."""
        return [self._shape(each) for each in self._items(value)]

    def names(self, value: Any) -> list[str]:
        """`value` as names. Raises `ValueError` where it has another form."""
        found = self._items(value)
        if not all(isinstance(name, str) for name in found):
            raise ValueError("a name of a type is no text")
        return list(found)

    def _shape(self, value: Any) -> list[int]:
        shape = [_count(number) for number in self._items(value)]
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError("a tensor has too many dimensions")
        return shape

    def _items(self, value: Any) -> Sequence[Any]:
        if not isinstance(value, list | tuple):
            raise ValueError("sizes and types are no lists")
        self._left -= len(value) + 1
        if self._left < 0:
            raise ValueError("it has too many sizes")
        return value


def _count(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 62:
        raise ValueError("a size is no count")
    return number


def _message_bytes(
    inputs: list[list[int]], outputs: list[list[int]], dtype: str | None
) -> int | None:
    """The larger of what is put in and got out (nccl-tests, doc/PERFORMANCE.md)."""
    size = None if dtype is None else element_bytes().get(dtype)
    elements = max(sum(math.prod(each) for each in several) for several in (inputs, outputs))
    if size is None or not (inputs or outputs):
        return None
    return elements * size if elements * size < 1 << 62 else None


def _told_groups(dump: Dump) -> dict[str, ProcessGroup]:
    """The groups that the dump itself lists."""
    found, left = {}, _MOST_RANKS
    for name, group in dump.pg_config.items():
        if name:
            ranks = group.members
            left -= len(ranks)
            if left < 0:
                raise ValueError("its groups have too many members")
            found[name] = ProcessGroup(name=name, description=group.desc, ranks=ranks)
    return found


def _warnings(dump: Dump) -> tuple[str, ...]:
    if not dump.entries:
        return ("no collectives in this dump of the flight recorder",)
    return ()
