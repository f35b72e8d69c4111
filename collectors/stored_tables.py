"""What rows of a stored table must hold, because everything that reads them takes it for granted.

A table is checked once, as it is read from a disk: other programs, versions and damage may have put
anything into it.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors import host_events, kernel_origins
from gpuprof.collectors.errors import CaptureError, problem_of

# Columns without nulls. Kernels may lack times, as counters do, and ranges an end.
REQUIRED: Final = {
    "kernels": ("name", "kind"),
    "ops": ("op_id", "name", "start_ns", "end_ns"),
    "launches": ("name", "start_ns", "end_ns"),
    "ranges": ("name", "domain", "start_ns"),
    "positions": ("start_ns", "end_ns"),
    "steps": ("index", "start_ns", "end_ns", "host_ns", "phase"),
    "samples": ("time_ns",),
    "counters": ("kernel", "metric", "value"),
    "allocations": ("time_ns", "bytes"),
    "memory_blocks": ("time_ns", "moment", "bytes"),
    "out_of_memory": ("time_ns",),
    "graph_nodes": ("graph", "node", "kind"),
    "collective_records": ("record",),
}
_UNIQUE: Final = {"ops": ("op_id",), "steps": ("index",)}
# Half the range of int64: a difference of two such times is one, too. It reaches the year 2116.
_LATEST_NS: Final = 1 << 62
# 36 years: a time and the sum of two lengths is inside int64.
_LONGEST_NS: Final = 1 << 60
_LENGTHS: Final = frozenset(
    (
        *("device_ns", "host_ns", "run_delay_ns", "garbage_collection_ns", "loader_ns"),
        *("duration_ns", "timeout_ns"),
        # Of summaries of ranks.
        *("gc_ns", "working_ns", "exposed_communication_ns", "idle_ns", "exposed_ns"),
    )
)
_STRINGS: Final = msgspec.json.Decoder(tuple[str, ...])
_INTEGERS: Final = msgspec.json.Decoder(tuple[int, ...])
_ANY_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
# Columns that hold JSON text, and what decodes it.
JSON_COLUMNS: Final[dict[str, Callable[[str], object]]] = {
    "input_dims": _ANY_LIST.decode,
    "input_types": _ANY_LIST.decode,
    "input_strides": _ANY_LIST.decode,
    "concrete_inputs": _ANY_LIST.decode,
    "argument_names": _STRINGS.decode,
    "argument_accesses": _INTEGERS.decode,
    "origins": kernel_origins.decode_origins,
    "host_event": host_events.decode,
    "flops_by_unit": _ANY_LIST.decode,
    "input_sizes": _ANY_LIST.decode,
    "output_sizes": _ANY_LIST.decode,
}


def refuse_damaged(file: Path, table: str, frame: pl.DataFrame) -> None:
    """Raise `CaptureError` where `frame`, read from `file`, is no `table` of a capture.

    It has the columns and types of the table already.
    """
    problem = next(_problems(table, frame), "")
    if problem:
        raise CaptureError(
            file,
            f"not what a capture holds: {problem}",
            remedy="collect the capture again",
        )


def _problems(table: str, frame: pl.DataFrame) -> Iterator[str]:
    yield from row_problems(frame, required=REQUIRED[table], unique=_UNIQUE.get(table, ()))
    if table == "kernels":
        half = frame["start_ns"].is_null() != frame["end_ns"].is_null()
        if half.any():
            yield f"{_place(half)} has a start and no end, or an end and no start"


def row_problems(
    frame: pl.DataFrame, *, required: Iterable[str], unique: Iterable[str] = ()
) -> Iterator[str]:
    """What is wrong with rows whose columns are named as those of tables.

    `required` are columns without nulls, `unique` those without equal values.
    """
    for name in required:
        if frame[name].null_count():
            yield f"{_place(frame[name].is_null())} has no {name}"
    for name in unique:
        if frame[name].is_duplicated().any():
            yield f"{_place(frame[name].is_duplicated())} has the {name} of another"
    for name in frame.columns:
        column = frame[name]
        if name.endswith("_ns"):
            is_length = name in _LENGTHS
            least, most = (0, _LONGEST_NS) if is_length else (-_LATEST_NS, _LATEST_NS)
            wrong = ~column.is_between(least, most)
            if wrong.any():
                yield f"{_place(wrong)} has a {name} out of range"
        elif column.dtype.is_float():
            if not column.is_finite().all():
                yield f"{_place(~column.is_finite())} has a {name} that is no number"
        elif name in JSON_COLUMNS:
            yield from _json_problems(name, column)
    if {"start_ns", "end_ns"} <= set(frame.columns):
        backwards = frame["end_ns"] < frame["start_ns"]
        if backwards.any():
            yield f"{_place(backwards)} ends before it starts"


def _json_problems(name: str, column: pl.Series) -> Iterator[str]:
    for text in column.drop_nulls().unique(maintain_order=True):
        problem = _json_problem(JSON_COLUMNS[name], text)
        if problem:
            yield f"{_place(column == text)} has a {name} that is none: {problem}"


def _json_problem(decode: Callable[[str], object], text: str) -> str:
    try:
        decode(text)
    # ValueError: numbers of thousands of digits.
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return problem_of(error)
    return ""


def _place(wrong: pl.Series) -> str:
    return f"row {wrong.fill_null(False).arg_true()[0]}"
