"""A text that stands in many rows is once in a file, and once in memory until rows are looked at.

Then it is there as often as it stands.
"""

from typing import Final

import polars as pl

# Of recorded captures all rows of a column together have up to 60 times the bytes of their file.
PER_BYTE_OF_PARQUET: Final = 1000
_MOST_OF_ANY_FILE: Final = 128 << 20
# Stacks of 20 frames of 300 characters at most are in every row of a history, whose rows take a few
# bytes, and are looked at once each.
_STACK: Final = "stack"
_LONGEST_STACK: Final = 20_000


def repeated_text_problem(table: pl.DataFrame, most_bytes: int) -> str:
    """What is wrong with a table whose columns may have so much text; "" where nothing is."""
    lengths = table.select(pl.col(pl.String).str.len_bytes())
    if _STACK in lengths.columns and not (lengths[_STACK] > _LONGEST_STACK).any():
        lengths = lengths.drop(_STACK)
    most = max((int(column.sum()) for column in lengths), default=0)
    if most <= max(_MOST_OF_ANY_FILE, most_bytes):
        return ""
    return f"{most >> 20} MiB of text, which is more than its size allows"
