"""Batches of events -> the columns of a capture, one frame a batch, joined at the end."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import astuple

from gpuprof.collectors.kineto.decode import Batch
from gpuprof.collectors.kineto.events import (
    Annotation,
    DeviceArgs,
    DriverLaunch,
    Kernel,
    Launch,
    Memcpy,
    Memory,
    MemoryArgs,
    Memset,
    Op,
    OpArgs,
    PythonFunction,
)
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.lenient import identifier

Integers = npt.NDArray[np.int64]

# A float64 of microseconds below this is within half a nanosecond of the decimal that was written,
# if its whole part and its fraction are converted apart.
_EXACT_BELOW_US: Final = float(2**43)
_DIMENSIONS: Final = ("x", "y", "z")
_NO_OP: Final = OpArgs()
_NO_DEVICE: Final = DeviceArgs()
_NO_MEMORY: Final = MemoryArgs()
_NO_SIZE: Final = (None, None, None)
# The name of allocator events among the instants of their category.
_MEMORY: Final = "[memory]"
_KINDS: Final[dict[type[Struct], str]] = {Kernel: "kernel", Memcpy: "memcpy", Memset: "memset"}
_TABLE_OF: Final[dict[type[Struct], str]] = {
    Op: "ops",
    Launch: "launches",
    DriverLaunch: "launches",
    **dict.fromkeys(_KINDS, "kernels"),
    Annotation: "ranges",
    PythonFunction: "frames",
    Memory: "allocations",
}

# The columns of each table before rank, kinds and links are known. `order` breaks ties of start.
_SHARED: Final = {
    "name": pl.String,
    "process": pl.Int64,
    "thread": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}
_TEXTS: Final = ("input_dims", "input_types", "input_strides", "concrete_inputs")
OPS: Final = pl.Schema(
    {
        **_SHARED,
        "order": pl.Int64,
        "sequence": pl.Int64,
        "forward_thread": pl.Int64,
        # JSON text, still bytes.
        **dict.fromkeys(_TEXTS, pl.Binary),
    }
)
LAUNCHES: Final = pl.Schema({**_SHARED, "correlation": pl.Int64})
RANGES: Final = pl.Schema(_SHARED)
ALLOCATIONS: Final = pl.Schema(
    {
        "name": pl.String,
        **dict.fromkeys(("process", "thread", "start_ns"), pl.Int64),
        **dict.fromkeys(MemoryArgs.__struct_fields__, pl.Int64),
    }
)
_DEVICE_COLUMNS: Final[tuple[str, ...]] = tuple(
    name for name in DeviceArgs.__struct_fields__ if name not in ("grid", "block")
)
_DEVICE_TEXTS: Final = ("collective", "dtype", "group")
KERNELS: Final = pl.Schema(
    {
        **_SHARED,
        "kind": pl.String,
        **{name: pl.String if name in _DEVICE_TEXTS else pl.Int64 for name in _DEVICE_COLUMNS},
        **{f"{what}_{axis}": pl.Int64 for what in ("grid", "block") for axis in _DIMENSIONS},
    }
)
_SCHEMAS: Final = {
    "ops": OPS,
    "launches": LAUNCHES,
    "kernels": KERNELS,
    "ranges": RANGES,
    "frames": RANGES,
    "allocations": ALLOCATIONS,
}


class InexactTimes(Exception):
    """Times are floats too large to be exact; nothing was added."""


class Tables:
    """Collects the events of a trace by table."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._frames: dict[str, list[pl.DataFrame]] = {name: [] for name in _SCHEMAS}

    def add(self, batch: Batch) -> None:
        """Add the events of `batch`. Raises `InexactTimes` before adding any."""
        groups: defaultdict[type[Struct], list[Struct]] = defaultdict(list)
        for event in batch.events:
            groups[type(event)].append(event)
        converted = [self._frame(kind, found, batch.exact) for kind, found in groups.items()]
        for name, frame in filter(None, converted):
            self._frames[name].append(frame)

    def table(self, name: str) -> pl.DataFrame:
        """All rows of one table, in the order of the file. The rows are given up."""
        frame = pl.concat([pl.DataFrame(schema=_SCHEMAS[name]), *self._frames.pop(name)])
        if name == "allocations":
            return frame.filter(pl.col("name") == _MEMORY).rename({"start_ns": "time_ns"})
        negative = frame["end_ns"] < frame["start_ns"]
        if negative.any():
            self._findings.negative_durations += int(negative.sum())
            frame = frame.filter(~negative)
        if name == "ops":
            return frame.with_columns(self._text(frame[name]) for name in _TEXTS)
        if "correlation" in frame.columns:
            # Kineto writes 0 where an activity had no correlation.
            frame = frame.with_columns(pl.col("correlation").replace(0, None))
        if name == "kernels":
            # The rows of device events are a process per device and a thread per stream.
            return frame.with_columns(
                device=pl.coalesce("device", "process"), stream=pl.coalesce("stream", "thread")
            )
        return frame

    def _text(self, column: pl.Series) -> pl.Series:
        """JSON values as text on one line, in Kineto's own spacing; null where absent."""
        try:
            text: pl.Series = column.cast(pl.String)
        except pl.exceptions.ComputeError:
            # The typed decoder does not look into values that it leaves as they are.
            repaired = [value.decode(errors="replace") for value in column]
            text = pl.Series(column.name, repaired)
            number = text.str.count_matches("\ufffd", literal=True).sum()
            self._findings.repairs["invalid UTF-8 sequence"] += int(number)
        if text.str.contains("\n", literal=True).any():
            text = text.str.replace_all(r",\s*\n\s*", ", ").str.replace_all(r"\s*\n\s*", "")
        return text.set((text == "") | (text == "null"), None)

    def _frame(
        self, kind: type[Struct], events: list[Struct], exact: bool
    ) -> tuple[str, pl.DataFrame] | None:
        """The table and rows of events of one kind, or None for a kind that is not read.

        Only conversions here: anything that polars computes is cheaper once on the whole table.
        """
        if kind not in _TABLE_OF:
            return None
        columns = list(zip(*map(astuple, events), strict=True))
        _, names, processes, threads, starts, *rest = columns
        start_ns = _nanoseconds(starts, exact)
        shared = {
            "name": pl.Series(names, dtype=pl.String),
            "process": _identifiers(processes),
            "thread": _identifiers(threads),
            "start_ns": start_ns,
        }
        if kind is Memory:
            return "allocations", pl.DataFrame({**shared, **_memory_columns(rest[0])})
        shared["end_ns"] = start_ns + _nanoseconds(rest[0], exact)
        if kind is Op:
            shared.update(_op_columns(rest[1]))
        elif issubclass(kind, Launch):
            values = [each.correlation if each else None for each in rest[1]]
            shared["correlation"] = pl.Series(values, dtype=pl.Int64)
        elif issubclass(kind, Kernel):
            shared["kind"] = pl.Series([_KINDS[kind]] * len(events))
            shared.update(_device_columns(rest[1]))
        return _TABLE_OF[kind], pl.DataFrame(shared)


def _memory_columns(args: Sequence[MemoryArgs | None]) -> dict[str, pl.Series]:
    values = zip(*(astuple(each or _NO_MEMORY) for each in args), strict=True)
    return {
        name: pl.Series(column, dtype=pl.Int64)
        for name, column in zip(MemoryArgs.__struct_fields__, values, strict=True)
    }


def _op_columns(args: Sequence[OpArgs | None]) -> dict[str, pl.Series]:
    external, sequence, forward, *texts = zip(
        *(astuple(each or _NO_OP) for each in args), strict=True
    )
    return {
        "order": pl.Series(external, dtype=pl.Int64),
        "sequence": pl.Series(sequence, dtype=pl.Int64),
        "forward_thread": pl.Series(forward, dtype=pl.Int64),
        **{
            name: pl.Series(list(map(bytes, column)), dtype=pl.Binary)
            for name, column in zip(_TEXTS, texts, strict=True)
        },
    }


def _device_columns(args: Sequence[DeviceArgs | None]) -> dict[str, pl.Series]:
    values = zip(*(astuple(each or _NO_DEVICE) for each in args), strict=True)
    fields: dict[str, Sequence[Any]] = dict(zip(DeviceArgs.__struct_fields__, values, strict=True))
    columns = {name: pl.Series(fields[name], dtype=KERNELS[name]) for name in _DEVICE_COLUMNS}
    for what in ("grid", "block"):
        sizes = [each or _NO_SIZE for each in fields[what]]
        for axis, column in zip(_DIMENSIONS, zip(*sizes, strict=True), strict=True):
            columns[f"{what}_{axis}"] = pl.Series(column, dtype=pl.Int64)
    return columns


def _nanoseconds(times: Sequence[Any], exact: bool) -> Integers:
    """Microseconds as decoded -> int64 nanoseconds. Raises `InexactTimes`."""
    values: npt.NDArray[Any] = np.array(times)
    if exact:
        return values
    if values.dtype == np.int64:
        values *= 1000
        return values
    if np.abs(values).max() >= _EXACT_BELOW_US:
        raise InexactTimes
    whole = np.floor(values)
    fraction = np.rint((values - whole) * 1000).astype(np.int64)
    nanoseconds: Integers = whole.astype(np.int64) * 1000 + fraction
    return nanoseconds


def _identifiers(values: Sequence[Any]) -> Integers:
    array: Integers = np.array(values)
    if array.dtype == np.int64:
        return array
    return np.array([identifier(value) for value in values], np.int64)
