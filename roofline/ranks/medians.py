"""Medians of rows of which some are absent, since what is 0 has no row."""

import polars as pl


def median_with_absent(column: str, count: int) -> pl.Expr:
    """The lower median of `count` values, of which those without a row in the group are 0.

    For values that are not negative.
    """
    absent = count - pl.len().cast(pl.Int64)
    at = (count - 1) // 2 - absent
    # Zeros come first.
    return pl.when(at >= 0).then(pl.col(column).sort().get(at.clip(0))).otherwise(0)
