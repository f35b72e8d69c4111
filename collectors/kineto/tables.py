"""Batches of events -> the columns of a capture, one frame a batch, joined at the end."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Raw, Struct
from msgspec.structs import astuple

from gpuprof.collectors.kineto.decode import Batch
from gpuprof.collectors.kineto.events import (
    Annotation,
    DeviceArgs,
    DriverLaunch,
    Kernel,
    Launch,
    LaunchArgs,
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
_NO_LAUNCH: Final = LaunchArgs()
_NO_DEVICE: Final = DeviceArgs()
_NO_MEMORY: Final = MemoryArgs()
_KINDS: Final[dict[type[Kernel], str]] = {Kernel: "kernel", Memcpy: "memcpy", Memset: "memset"}

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
        **dict.fromkeys(_TEXTS, pl.String),
    }
)
LAUNCHES: Final = pl.Schema({**_SHARED, "correlation": pl.Int64})
RANGES: Final = pl.Schema(_SHARED)
ALLOCATIONS: Final = pl.Schema(
    {
        "process": pl.Int64,
        "thread": pl.Int64,
        "time_ns": pl.Int64,
        **dict.fromkeys(("bytes", "total", "device_type", "device"), pl.Int64),
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
        groups: dict[type[Struct], list[Struct]] = {}
        for event in batch.events:
            kind = type(event)
            group = groups.get(kind)
            if group is None:
                groups[kind] = [event]
            else:
                group.append(event)
        converted = [self._frame(kind, found, batch.exact) for kind, found in groups.items()]
        for name, frame in filter(None, converted):
            self._frames[name].append(frame)

    def table(self, name: str) -> pl.DataFrame:
        """All rows of one table, in the order of the file. The rows are given up."""
        frames = self._frames.pop(name)
        return pl.concat([pl.DataFrame(schema=_SCHEMAS[name]), *frames])

    def _frame(
        self, kind: type[Struct], events: list[Struct], exact: bool
    ) -> tuple[str, pl.DataFrame] | None:
        """The table and rows of events of one kind, or None for a kind that is not read."""
        columns = list(zip(*map(astuple, events), strict=True))
        if kind is Memory:
            return "allocations", _allocations(columns, exact)
        if kind is Op:
            name, extra = "ops", _op_columns(columns.pop())
        elif kind is Launch or kind is DriverLaunch:
            name, extra = "launches", _launch_columns(columns.pop())
        elif kind in _KINDS:
            name, extra = "kernels", _device_columns(columns.pop())
            extra["kind"] = pl.repeat(_KINDS[kind], len(events), eager=True)
        elif kind is Annotation:
            name, extra = "ranges", {}
        elif kind is PythonFunction:
            name, extra = "frames", {}
        else:
            return None
        _, names, processes, threads, starts, durations = columns
        start_ns, duration_ns = _nanoseconds(starts, exact), _nanoseconds(durations, exact)
        frame = pl.DataFrame(
            {
                "name": pl.Series(names, dtype=pl.String),
                "process": _identifiers(processes),
                "thread": _identifiers(threads),
                "start_ns": start_ns,
                "end_ns": start_ns + duration_ns,
                **extra,
            }
        ).select(_SCHEMAS[name].names())
        negative = duration_ns < 0
        if negative.any():
            self._findings.negative_durations += int(negative.sum())
            frame = frame.filter(~negative)
        return name, frame


def _allocations(columns: Sequence[Sequence[Any]], exact: bool) -> pl.DataFrame:
    _, names, processes, threads, times, args = columns
    values = zip(*(astuple(each or _NO_MEMORY) for each in args), strict=True)
    fields = zip(MemoryArgs.__struct_fields__, values, strict=True)
    frame = pl.DataFrame(
        {
            "process": _identifiers(processes),
            "thread": _identifiers(threads),
            "time_ns": _nanoseconds(times, exact),
            **{name: pl.Series(column, dtype=pl.Int64) for name, column in fields},
        }
    ).select(ALLOCATIONS.names())
    return frame.filter(np.array([name == "[memory]" for name in names]))


def _op_columns(args: Iterable[OpArgs | None]) -> dict[str, pl.Series]:
    external, sequence, forward, *texts = zip(
        *(astuple(each or _NO_OP) for each in args), strict=True
    )
    return {
        "order": pl.Series(external, dtype=pl.Int64),
        "sequence": pl.Series(sequence, dtype=pl.Int64),
        "forward_thread": pl.Series(forward, dtype=pl.Int64),
        **{name: _text(column) for name, column in zip(_TEXTS, texts, strict=True)},
    }


def _launch_columns(args: Iterable[LaunchArgs | None]) -> dict[str, pl.Series]:
    values = [(each or _NO_LAUNCH).correlation or None for each in args]
    return {"correlation": pl.Series(values, dtype=pl.Int64)}


def _device_columns(args: Sequence[DeviceArgs | None]) -> dict[str, pl.Series]:
    values = zip(*(astuple(each or _NO_DEVICE) for each in args), strict=True)
    fields: dict[str, Sequence[Any]] = dict(zip(DeviceArgs.__struct_fields__, values, strict=True))
    columns = {name: pl.Series(fields[name], dtype=KERNELS[name]) for name in _DEVICE_COLUMNS}
    # Kineto writes 0 where an activity had no correlation.
    columns["correlation"] = columns["correlation"].replace(0, None)
    for what in ("grid", "block"):
        sizes = [each or (None, None, None) for each in fields[what]]
        for axis, column in zip(_DIMENSIONS, zip(*sizes, strict=True), strict=True):
            columns[f"{what}_{axis}"] = pl.Series(column, dtype=pl.Int64)
    return columns


def _nanoseconds(times: Sequence[Any], exact: bool) -> Integers:
    """Microseconds as decoded -> int64 nanoseconds. Raises `InexactTimes`."""
    values = np.array(times)
    if exact:
        return values.astype(np.int64)
    if values.dtype == np.int64:
        return values * 1000
    if np.abs(values).max() >= _EXACT_BELOW_US:
        raise InexactTimes
    whole = np.floor(values)
    fraction = np.rint((values - whole) * 1000).astype(np.int64)
    return whole.astype(np.int64) * 1000 + fraction


def _identifiers(values: Sequence[Any]) -> Integers:
    array = np.array(values)
    if array.dtype == np.int64:
        return array
    return np.array([identifier(value) for value in values], np.int64)


def _text(column: Sequence[Raw]) -> pl.Series:
    """JSON values as text on one line, in Kineto's own spacing; null where absent."""
    if not any(column):
        return pl.repeat(None, len(column), dtype=pl.String, eager=True)
    text = pl.Series(list(map(bytes, column)), dtype=pl.Binary).cast(pl.String)
    if text.str.contains("\n", literal=True).any():
        text = text.str.replace_all(r",\s*\n\s*", ", ").str.replace_all(r"\s*\n\s*", "")
    return text.replace(["", "null"], None)
