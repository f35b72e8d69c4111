"""Tables in Parquet files, which may expand without bound."""

from pathlib import Path
from typing import Final

import polars as pl

from gpuprof.collectors.errors import CaptureError

# Times differ from row to row, so a row of any table takes more than a bit.
_MOST_ROWS_PER_BYTE: Final = 16
# What a file of few rows takes for its columns' names counts for no rows.
_ROWS_OF_ANY_FILE: Final = 1 << 20


def scan_table(file: Path) -> pl.LazyFrame:
    """The rows of `file`, not yet read.

    Raises `CaptureError` where it says of itself that they are far more than its size allows, and
    polars' errors or `OSError` where it is damaged or not there.
    """
    # A name may hold what a pattern reads otherwise, and folders above it are no columns.
    rows = pl.scan_parquet(file, glob=False, hive_partitioning=False)
    number = rows.select(pl.len()).collect().item()
    if number > max(_ROWS_OF_ANY_FILE, _MOST_ROWS_PER_BYTE * file.stat().st_size):
        raise CaptureError(file, f"{number} rows, which is more than its size allows")
    return rows
