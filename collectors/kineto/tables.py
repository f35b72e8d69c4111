"""Batches of events -> the columns of a capture, one frame a batch, joined at the end."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.collectors.kineto import decode
from gpuprof.collectors.kineto.cells import Cells, stacked
from gpuprof.collectors.kineto.decode import Batch
from gpuprof.collectors.kineto.events import (
    Annotation,
    AnnotationArgs,
    CallArgs,
    CollectiveArgs,
    DeviceArgs,
    DriverCall,
    Kernel,
    Memcpy,
    Memory,
    MemoryArgs,
    Memset,
    Op,
    OpArgs,
    PythonFunction,
    RecordedSpan,
    RuntimeCall,
)
from gpuprof.collectors.kineto.file_texts import Texts, plain_text
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.lenient import identifier
from gpuprof.collectors.kineto.python_frames import is_wanted

# A float64 of microseconds below this is within half a nanosecond of the decimal that was written,
# if its whole part and its fraction are converted apart.
_EXACT_BELOW_US: Final = float(2**43)
_NO_SIZE: Final = (None, None, None)
# The operator around a collective's launch (torch/csrc/distributed/c10d/ParamCommsUtils.hpp).
COLLECTIVE_OP: Final = "record_param_comms"
# What carries out a collective of a CPU names itself so (torch/csrc/distributed/c10d/
# ProcessGroupGloo.cpp and ProcessGroupMPI.cpp).
HOST_BACKENDS: Final = ("gloo:", "mpi:")
# The name of allocator events among the instants of their category.
_MEMORY: Final = "[memory]"
_KINDS: Final[dict[type[Struct], str]] = {Kernel: "kernel", Memcpy: "memcpy", Memset: "memset"}
_TABLE_OF: Final[dict[type[Struct], str]] = {
    Op: "ops",
    RuntimeCall: "launches",
    DriverCall: "launches",
    **dict.fromkeys(_KINDS, "kernels"),
    Annotation: "ranges",
    RecordedSpan: "recordings",
    PythonFunction: "frames",
    Memory: "allocations",
}
# Stand for the args of events that have none; kinds whose args are not read are absent here.
_NO_ARGS: Final[dict[type[Struct], Struct]] = {
    Op: OpArgs(),
    **dict.fromkeys((RuntimeCall, DriverCall), CallArgs()),
    **dict.fromkeys(_KINDS, DeviceArgs()),
    Annotation: AnnotationArgs(),
    Memory: MemoryArgs(),
}

# The columns of each table before rank, kinds and links are known. external_id tells which of two
# operators that start together is the outer one.
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
        "external_id": pl.Int64,
        "sequence": pl.Int64,
        "forward_thread": pl.Int64,
        # JSON text.
        **dict.fromkeys(_TEXTS, pl.String),
        "kernel_file": pl.String,
    }
)
SIZES: Final = {f"{what}_{axis}": pl.Int64 for what in ("grid", "block") for axis in "xyz"}
LAUNCHES: Final = pl.Schema({**_SHARED, "correlation": pl.Int64, "kernel": pl.String, **SIZES})
RANGES: Final = pl.Schema(_SHARED)
ALLOCATIONS: Final = pl.Schema(
    {
        "name": pl.String,
        **dict.fromkeys(("process", "thread", "start_ns"), pl.Int64),
        **dict.fromkeys(MemoryArgs.__struct_fields__, pl.Int64),
    }
)
_DEVICE_TEXTS: Final = ("collective", "dtype", "group", "annotated_name", "annotation")
COLLECTIVE_COLUMNS: Final = {
    name: pl.String if name in _DEVICE_TEXTS else pl.Int64
    for name in CollectiveArgs.__struct_fields__
}
_DEVICE_COLUMNS: Final[tuple[str, ...]] = tuple(
    name
    for name in DeviceArgs.__struct_fields__
    if name not in ("grid", "block") and name not in COLLECTIVE_COLUMNS
)
KERNELS: Final = pl.Schema(
    {
        **_SHARED,
        "kind": pl.String,
        **{name: pl.String if name in _DEVICE_TEXTS else pl.Int64 for name in _DEVICE_COLUMNS},
        **COLLECTIVE_COLUMNS,
        **SIZES,
    }
)
# Of those operators only that say what a collective is; they are rows of `OPS` too.
COLLECTIVE_OPS: Final = pl.Schema({**_SHARED, **COLLECTIVE_COLUMNS})
# Of those ranges only that are the work of a collective; they are rows of `RANGES` too.
HOST_COLLECTIVES: Final = pl.Schema(
    {**_SHARED, **dict.fromkeys(("input_dims", "input_types"), pl.String)}
)
_SCHEMAS: Final = {
    "ops": OPS,
    "collective_ops": COLLECTIVE_OPS,
    "host_collectives": HOST_COLLECTIVES,
    "launches": LAUNCHES,
    "kernels": KERNELS,
    "ranges": RANGES,
    "recordings": RANGES,
    "frames": RANGES,
    "allocations": ALLOCATIONS,
}


class InexactTimes(Exception):
    """Times are floats too large to be exact; nothing was added."""


def add_batch(tables: "Tables", batch: Batch, block: int) -> None:
    """Add the events of `batch`, number `block`, their times read again where floats fall short."""
    try:
        tables.add(batch, block)
    except InexactTimes:
        tables.add(decode.exactly(batch, tables.findings), block)


@dataclass(frozen=True)
class _Part:
    """Rows of one block of the file."""

    block: int
    rows: pl.DataFrame | Cells


class Tables:
    """Collects the events of a trace by table."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        # By table.
        self._parts: dict[str, list[_Part]] = {name: [] for name in _SCHEMAS}

    def add(self, batch: Batch, block: int) -> None:
        """Add the events of `batch`, number `block`. Raises `InexactTimes` before adding any."""
        groups: defaultdict[type[Struct], list[Any]] = defaultdict(list)
        for event in batch.events:
            groups[type(event)].append(event)
        frames = [event for event in groups.pop(PythonFunction, []) if is_wanted(event.name)]
        if frames:
            groups[PythonFunction] = frames
        parts = [
            (_TABLE_OF[kind], kind, events) for kind, events in groups.items() if kind in _TABLE_OF
        ]
        collectives = [event for event in groups[Op] if event.name == COLLECTIVE_OP]
        if collectives:
            parts.append(("collective_ops", Op, collectives))
        on_host = [each for each in groups[Annotation] if each.name.startswith(HOST_BACKENDS)]
        if on_host:
            parts.append(("host_collectives", Annotation, on_host))
        converted = [
            (table, _frame(table, kind, events, batch.exact)) for table, kind, events in parts
        ]
        for name, frame in converted:
            texts = [self._text(frame[column]) for column in _TEXTS if column in frame.columns]
            self._parts[name].append(_Part(block, frame.with_columns(texts)))

    def add_cells(self, block: int, name: str, cells: Cells) -> None:
        """Add rows of the table `name`."""
        self._parts[name].append(_Part(block, cells))

    def add_all(self, others: "Tables") -> None:
        """Add the rows of `others`."""
        for name, parts in others._parts.items():
            self._parts[name] += parts

    def is_empty(self) -> bool:
        """Nothing was added that a capture has rows of."""
        return not any(self._parts[name] for name in ("ops", "kernels", "launches", "ranges"))

    def all(self) -> dict[str, pl.DataFrame]:
        """All rows by table, in the order of the file. The rows are given up."""
        return {name: self._table(name) for name in _SCHEMAS}

    def _table(self, name: str) -> pl.DataFrame:
        parts = sorted(self._parts.pop(name), key=attrgetter("block"))
        schema = _SCHEMAS[name]
        alike = groupby((part.rows for part in parts), _texts_of)
        frames = [frame for _, rows in alike for frame in _frames(list(rows), schema)]
        # Diagonal: a frame lacks the columns of which it has no value.
        frame = pl.concat([pl.DataFrame(schema=schema), *frames], how="diagonal")
        if name == "allocations":
            return frame.filter(pl.col("name") == _MEMORY).rename({"start_ns": "time_ns"})
        negative = frame["end_ns"] < frame["start_ns"]
        if negative.any():
            self.findings.negative_durations += int(negative.sum())
            frame = frame.filter(~negative)
        if "correlation" in frame.columns:
            # Kineto writes 0 where an activity had no correlation.
            known = pl.when(pl.col("correlation") != 0).then("correlation")
            frame = frame.with_columns(correlation=known)
        if name == "kernels":
            # The rows of device events are a process per device and a thread per stream.
            return frame.with_columns(
                device=pl.coalesce("device", "process"),
                stream=pl.coalesce("stream", "thread"),
                annotation=pl.when(pl.col("graph_node") != 0).then(
                    pl.coalesce("annotated_name", "annotation")
                ),
            )
        return frame

    def _text(self, column: pl.Series) -> pl.Series:
        """As `plain_text`, with invalid UTF-8 repaired."""
        try:
            return plain_text(column)
        except pl.exceptions.ComputeError:
            # The typed decoder does not look into values that it leaves as they are.
            repaired = [value.decode(errors="replace") for value in column]
            text = pl.Series(column.name, repaired)
            number = text.str.count_matches("\ufffd", literal=True).sum()
            self.findings.repairs["invalid UTF-8 sequence"] += int(number)
            return plain_text(text)


def _texts_of(rows: pl.DataFrame | Cells) -> Texts | None:
    return rows.texts if isinstance(rows, Cells) else None


def _frames(parts: Sequence[pl.DataFrame | Cells], schema: pl.Schema) -> list[pl.DataFrame]:
    """`parts` that follow each other, which are frames or cells of the same texts."""
    cells = [part for part in parts if isinstance(part, Cells)]
    frames = [part for part in parts if isinstance(part, pl.DataFrame)]
    return [*frames, stacked(cells, schema)] if cells else frames


def _frame(table: str, kind: type[Struct], events: list[Any], exact: bool) -> pl.DataFrame:
    """The rows of `table` of events of one kind. Raises `InexactTimes`.

    Only conversions here: what polars computes is cheaper once on the whole table.
    """
    start_ns = _nanoseconds([event.ts for event in events], exact)
    columns: dict[str, Any] = {
        "name": pl.Series([event.name for event in events], dtype=pl.String),
        "process": _identifiers([event.pid for event in events]),
        "thread": _identifiers([event.tid for event in events]),
        "start_ns": start_ns,
    }
    if kind is not Memory:
        columns["end_ns"] = start_ns + _nanoseconds([event.dur for event in events], exact)
    absent = _NO_ARGS.get(kind)
    if absent is not None:
        args = [event.args or absent for event in events]
        columns.update(_fields(args, _SCHEMAS[table]))
        if kind in _KINDS:
            columns["kind"] = pl.Series([_KINDS[kind]] * len(events))
        if kind in _KINDS or "kernel" in columns:
            columns.update(_sizes(args))
    return pl.DataFrame(columns)


def _fields(args: Sequence[Struct], table: pl.Schema) -> dict[str, pl.Series]:
    """Those fields of `args` that are columns of `table` and have a value anywhere, by name."""
    columns = {}
    for name in args[0].__struct_fields__:
        dtype = table.get(name)
        if dtype is None:
            continue
        values: list[Any] = list(map(attrgetter(name), args))
        if name in _TEXTS:
            if any(values):
                columns[name] = pl.Series(name, list(map(bytes, values)), dtype=pl.Binary)
        elif values.count(None) < len(values):
            columns[name] = pl.Series(values, dtype=dtype)
    return columns


def _sizes(args: Sequence[Any]) -> dict[str, pl.Series]:
    """The three columns of each of grid and block."""
    columns = {}
    for what in ("grid", "block"):
        sizes = [getattr(each, what) or _NO_SIZE for each in args]
        for axis, name in enumerate("xyz"):
            values = [size[axis] for size in sizes]
            columns[f"{what}_{name}"] = pl.Series(values, dtype=pl.Int64)
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
