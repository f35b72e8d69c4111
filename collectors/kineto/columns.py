"""The text of some trace events -> rows of the tables, by the compiled decoder.

It takes what the typed decoder of `events` takes, and gives the same values: names and texts once
each with a number a row, times in nanoseconds. Elements that are written otherwise come back as
text and are read leniently. Where it reads nothing, as where nothing was compiled, `decode` reads
all.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.kineto import decode
from gpuprof.collectors.kineto.file_texts import FileTexts, NumberedTexts
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.python_frames import is_wanted
from gpuprof.collectors.kineto.tables import (
    COLLECTIVE_COLUMNS,
    COLLECTIVE_OP,
    HOST_BACKENDS,
    RANGES,
    SIZES,
    Tables,
)
from gpuprof.collectors.native import compiled

# By the numbers of the compiled decoder.
_KINDS: Final = pl.Series(["kernel", "memcpy", "memset"])
_NO_VALUE: Final = -(2**63)


def read(text: bytes, number: int, findings: Findings, texts: FileTexts) -> Tables | None:
    """The rows of `text`, block `number`, an array of events; None where it must be decoded.

    `texts` are those of the file.
    """
    found = None if compiled is None else compiled.read_events(text)
    if found is None:
        return None
    names, other_texts, columns, others = found
    own = Findings()
    tables = Tables(own)
    try:
        numbered = texts.numbered(names, other_texts)
    except (*decode.DECODE_ERRORS, pl.exceptions.ComputeError):
        # Invalid UTF-8: `decode` repairs it.
        return None
    for name, found_columns in columns.items():
        frame = pl.DataFrame([_column(*column, numbered) for column in found_columns])
        for table, rows in _tables(name, frame, numbered.named):
            tables.add_frame(number, table, rows, numbered.texts)
    if others:
        batch = decode.untyped(b"[" + b",".join(others) + b"]", own)
        if batch is None:
            return None
        tables.add(batch, number)
    findings.add(own)
    return tables


def _column(
    name: str, content: str, cells: bytes, lacks_any: bool, numbered: NumberedTexts
) -> pl.Series:
    if content != "integers":
        numbers = numbered.names if content == "names" else numbered.others
        return pl.Series(name, numbers[np.frombuffer(cells, np.uint32)])
    values = pl.Series(name, np.frombuffer(cells, np.int64))
    return values.set(values == _NO_VALUE, None) if lacks_any else values


def _tables(
    name: str, frame: pl.DataFrame, named: Mapping[int, str]
) -> list[tuple[str, pl.DataFrame]]:
    """The tables that `frame`, one of the decoder's, is in; `named` are names by their number."""
    if name == "ops":
        shared = [column for column in frame.columns if column not in COLLECTIVE_COLUMNS]
        found = [("ops", frame.select(shared))]
        collectives = _of_names(frame, named, COLLECTIVE_OP.__eq__)
        if collectives.height:
            kept = [name for name in frame.columns if name in (*RANGES, *COLLECTIVE_COLUMNS)]
            found.append(("collective_ops", collectives.select(kept)))
        return found
    if name == "ranges":
        found = [("ranges", frame.select(RANGES.names()))]
        of_host = _of_names(frame, named, lambda each: each.startswith(HOST_BACKENDS))
        if of_host.height:
            found.append(("host_collectives", of_host))
        return found
    if name == "frames":
        frame = _of_names(frame, named, is_wanted)
        return [("frames", frame)] if frame.height else []
    if name == "launches" and "kernel" not in frame.columns:
        return [("launches", frame.drop(*SIZES, strict=False))]
    if name == "kernels":
        frame = frame.with_columns(kind=_KINDS.gather(frame["kind"]))
    return [(name, frame)]


def _of_names(
    frame: pl.DataFrame, named: Mapping[int, str], wanted: Callable[[str], bool]
) -> pl.DataFrame:
    """The rows of `frame` with names that are `wanted`."""
    numbers = [number for number, name in named.items() if wanted(name)]
    if not numbers:
        return frame.clear()
    return frame.filter(frame["name"].is_in(pl.Series(numbers, dtype=pl.UInt32).implode()))
