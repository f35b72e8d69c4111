"""The text of some trace events -> rows of the tables, by the compiled decoder.

It takes what the typed decoder of `events` takes, and gives the same values: names and texts once
each with a number a row, times in nanoseconds. Elements that are written otherwise come back as
text and are read leniently. Where it reads nothing, as where nothing was compiled, `decode` reads
all.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.kineto import decode
from gpuprof.collectors.kineto.buffers import Elements
from gpuprof.collectors.kineto.cells import CellColumn, Cells
from gpuprof.collectors.kineto.file_texts import FileTexts, NumberedTexts
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.python_frames import is_wanted
from gpuprof.collectors.kineto.tables import (
    COLLECTIVE_COLUMNS,
    COLLECTIVE_OP,
    HOST_BACKENDS,
    OPS,
    RANGES,
    SIZES,
    Tables,
)
from gpuprof.collectors.native import compiled

# By the numbers of the compiled decoder.
_KINDS: Final = (b'"kernel"', b'"memcpy"', b'"memset"')
# Tables of those rows of another that have some names.
_OF_NAMES: Final[dict[str, Callable[[str], bool]]] = {
    "collective_ops": COLLECTIVE_OP.__eq__,
    "host_collectives": lambda name: name.startswith(HOST_BACKENDS),
    "frames": is_wanted,
}


def file_texts() -> FileTexts:
    """The texts of a file of which no block was read."""
    return FileTexts(_OF_NAMES)


def read(elements: Elements, number: int, findings: Findings, texts: FileTexts) -> Tables | None:
    """The rows of the events `elements`, block `number`; None where they must be decoded.

    `texts` are those of the file.
    """
    if compiled is None:
        return None
    found = compiled.read_events(elements.buffer, elements.length)
    if found is None:
        return None
    names, other_texts, columns, others = found
    own = Findings()
    tables = Tables(own)
    try:
        numbered = texts.numbered([*names, *_KINDS], other_texts)
    except (*decode.DECODE_ERRORS, pl.exceptions.ComputeError):
        # Invalid UTF-8: `decode` repairs it.
        return None
    for name, found_columns in columns.items():
        cells = {column: _cells(content, raw, numbered) for column, content, raw in found_columns}
        rows = Cells(cells, len(cells["name"]), numbered.texts)
        for table, part in _tables(name, rows, numbered):
            tables.add_cells(number, table, part)
    if others:
        batch = decode.untyped(b"[" + b",".join(others) + b"]", own)
        if batch is None:
            return None
        tables.add(batch, number)
    findings.add(own)
    return tables


def _cells(content: str, cells: bytes, numbered: NumberedTexts) -> CellColumn:
    if content == "integers":
        return np.frombuffer(cells, np.int64)
    numbers = numbered.names if content == "names" else numbered.others
    return numbers.take(np.frombuffer(cells, np.uint32))


def _tables(name: str, rows: Cells, numbered: NumberedTexts) -> Iterator[tuple[str, Cells]]:
    """The tables that `rows`, of one of the decoder's, are in."""
    if name == "ops":
        yield "ops", rows.select(OPS.names())
        collectives = _of_names("collective_ops", rows, numbered)
        if collectives is not None:
            yield "collective_ops", collectives.select((*RANGES, *COLLECTIVE_COLUMNS))
    elif name == "ranges":
        yield "ranges", rows.select(RANGES.names())
        of_host = _of_names("host_collectives", rows, numbered)
        if of_host is not None:
            yield "host_collectives", of_host
    elif name == "frames":
        frames = _of_names("frames", rows, numbered)
        if frames is not None:
            yield "frames", frames
    elif name == "launches" and "kernel" not in rows.columns:
        yield "launches", rows.select([each for each in rows.columns if each not in SIZES])
    elif name == "kernels":
        kinds = numbered.names[-len(_KINDS) :][rows.columns["kind"]]
        yield "kernels", Cells({**rows.columns, "kind": kinds}, rows.height, rows.texts)
    else:
        yield name, rows


def _of_names(table: str, rows: Cells, numbered: NumberedTexts) -> Cells | None:
    """Those of `rows` that are also in `table`, for their names; None if there are none."""
    marked = numbered.marked[table]
    if not len(marked):
        return None
    chosen = np.isin(rows.columns["name"], marked)
    return rows.rows(chosen) if chosen.any() else None
