"""The text of some trace events -> rows of the tables, by the compiled decoder.

It takes what the typed decoder of `events` takes, and gives the same values: names and texts once
each with a code a row, times in nanoseconds. Elements that are written otherwise come back as text
and are read leniently. Where it reads nothing, as where nothing was compiled, `decode` reads all.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.kineto import decode
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.python_frames import is_wanted
from gpuprof.collectors.kineto.tables import (
    COLLECTIVE_COLUMNS,
    COLLECTIVE_OP,
    HOST_BACKENDS,
    RANGES,
    SIZES,
    Tables,
    plain_text,
)
from gpuprof.collectors.native import compiled

# By the numbers of the compiled decoder.
_KINDS: Final = pl.Series(["kernel", "memcpy", "memset"])
_NO_VALUE: Final = -(2**63)
_NAMES: Final = msgspec.json.Decoder(list[str])


def read(text: bytes, number: int, findings: Findings) -> Tables | None:
    """The rows of `text`, block `number`, an array of events; None where it must be decoded."""
    found = None if compiled is None else compiled.read_events(text)
    if found is None:
        return None
    names, texts, columns, others = found
    own = Findings()
    tables = Tables(own)
    try:
        values = {
            "names": pl.Series([None, *_NAMES.decode(_array(names))], dtype=pl.String),
            "texts": plain_text(pl.Series([b"", *texts], dtype=pl.Binary)),
        }
    except (*decode.DECODE_ERRORS, pl.exceptions.ComputeError):
        # Invalid UTF-8: `decode` repairs it.
        return None
    for name, found_columns in columns.items():
        frame = pl.DataFrame([_column(*column, values) for column in found_columns])
        for table, rows in _tables(name, frame):
            tables.add_frame(number, table, rows)
    if others:
        batch = decode.untyped(_array(others), own)
        if batch is None:
            return None
        tables.add(batch, number)
    findings.add(own)
    return tables


def _array(elements: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(elements) + b"]"


def _column(
    name: str, content: str, cells: bytes, lacks_any: bool, values: Mapping[str, pl.Series]
) -> pl.Series:
    if content != "integers":
        codes = pl.Series(np.frombuffer(cells, np.uint32))
        return values[content].gather(codes).alias(name)
    numbers = pl.Series(name, np.frombuffer(cells, np.int64))
    return numbers.set(numbers == _NO_VALUE, None) if lacks_any else numbers


def _tables(name: str, frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """The tables that `frame`, one of the decoder's, is in."""
    names = frame["name"]
    if name == "ops":
        shared = [column for column in frame.columns if column not in COLLECTIVE_COLUMNS]
        found = [("ops", frame.select(shared))]
        collectives = frame.filter(names == COLLECTIVE_OP)
        if collectives.height:
            kept = [name for name in frame.columns if name in (*RANGES, *COLLECTIVE_COLUMNS)]
            found.append(("collective_ops", collectives.select(kept)))
        return found
    if name == "ranges":
        found = [("ranges", frame.select(RANGES.names()))]
        of_host = [backend for backend in HOST_BACKENDS if names.str.starts_with(backend).any()]
        if of_host:
            rows = pl.any_horizontal(pl.col("name").str.starts_with(each) for each in of_host)
            found.append(("host_collectives", frame.filter(rows)))
        return found
    if name == "frames":
        wanted = [each for each in names.unique() if is_wanted(each)]
        frame = frame.filter(names.is_in(wanted))
        return [("frames", frame)] if frame.height else []
    if name == "launches" and "kernel" not in frame.columns:
        return [("launches", frame.drop(*SIZES, strict=False))]
    if name == "kernels":
        frame = frame.with_columns(kind=_KINDS.gather(frame["kind"]))
    return [(name, frame)]
