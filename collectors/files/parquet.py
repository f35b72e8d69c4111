"""Tables in Parquet files, which may be damaged or expand without bound."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import polars as pl

from gpuprof.collectors.errors import CaptureError

# Times differ from row to row, so a row of any table takes more than a bit.
_MOST_ROWS_PER_BYTE: Final = 16
# What a file of few rows takes for its columns' names counts for no rows.
_ROWS_OF_ANY_FILE: Final = 1 << 20
_silencing = threading.Lock()


def read_table(
    file: Path, columns: Callable[[pl.Schema], Iterable[pl.Expr]] = lambda _: [pl.all()]
) -> pl.DataFrame:
    """The `columns` of `file`, chosen by its schema.

    Raises `CaptureError` where it says of itself that its rows are far more than its size allows,
    and polars' errors or `OSError` where it is damaged or not there.
    """
    # A name may hold what a pattern reads otherwise, and folders above it are no columns.
    rows = pl.scan_parquet(file, glob=False, hive_partitioning=False)
    try:
        with no_words_about_panics():
            number = rows.select(pl.len()).collect().item()
            if number > max(_ROWS_OF_ANY_FILE, _MOST_ROWS_PER_BYTE * file.stat().st_size):
                raise CaptureError(file, f"{number} rows, which is more than its size allows")
            return rows.select(columns(rows.collect_schema())).collect()
    except pl.exceptions.PanicException as error:
        raise pl.exceptions.ComputeError(f"polars gave up: {error}") from error


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
