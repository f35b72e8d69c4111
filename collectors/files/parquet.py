"""Tables in Parquet files, which may be damaged or expand without bound."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

import polars as pl

from gpuprof.collectors.files.parquet_pages import expansion
from gpuprof.collectors.files.repeated_text import PER_BYTE_OF_PARQUET, repeated_text_problem

# Times differ from row to row, so a row of any table takes more than a bit.
_MOST_ROWS_PER_BYTE: Final = 16
# Of recorded tables pages expand up to six times; with long stacks, which are in each group of
# rows, some ten times, and a hundred where their text is made up.
_MOST_EXPANSION: Final = 200
# In a small file that is little.
_ROWS_OF_ANY_FILE: Final = 1 << 16
_BYTES_OF_ANY_FILE: Final = 16 << 20
_silencing = threading.Lock()


def read_table(
    file: Path | bytes, columns: Callable[[pl.Schema], Iterable[pl.Expr]] = lambda _: [pl.all()]
) -> pl.DataFrame:
    """The `columns` of `file`, or of its content, chosen by its schema.

    Raises polars' errors where it is damaged, or says of itself that it expands to far more than
    its size allows, and `OSError` where it is not there.
    """
    # A name may hold what a pattern reads otherwise, and folders above it are no columns.
    source = BytesIO(file) if isinstance(file, bytes) else file
    try:
        with no_words_about_panics():
            rows = pl.scan_parquet(source, glob=False, hive_partitioning=False)
            number = rows.select(pl.len()).collect().item()
            with BytesIO(file) if isinstance(file, bytes) else file.open("rb") as content:
                size = content.seek(0, os.SEEK_END)
                _refuse_expansion(content, size, number)
            table = rows.select(columns(rows.collect_schema())).collect()
            problem = repeated_text_problem(table, PER_BYTE_OF_PARQUET * size)
            if problem:
                raise pl.exceptions.ComputeError(problem)
            return table
    except pl.exceptions.PanicException as error:
        raise pl.exceptions.ComputeError(f"polars gave up: {error}") from error


def _refuse_expansion(content: BinaryIO, size: int, rows: int) -> None:
    try:
        expanded = expansion(content)
    except (ValueError, LookupError, RecursionError) as error:
        raise pl.exceptions.ComputeError(f"its pages cannot be told ({error})") from error
    values = max(rows, expanded.values)
    if values > max(_ROWS_OF_ANY_FILE, _MOST_ROWS_PER_BYTE * size):
        raise pl.exceptions.ComputeError(f"{values} rows, which is more than its size allows")
    if expanded.size > max(_BYTES_OF_ANY_FILE, _MOST_EXPANSION * size):
        megabytes = expanded.size >> 20
        raise pl.exceptions.ComputeError(f"{megabytes} MiB, which is more than its size allows")


@contextmanager
def no_words_about_panics() -> Iterator[None]:
    """Some damage makes polars panic, of which Rust prints a page on stderr and it raises too."""
    with _silencing:
        try:
            kept = os.dup(2)
        except OSError:  # there is no stderr
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(nowhere)
            os.close(kept)
