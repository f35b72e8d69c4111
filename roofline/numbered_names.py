"""Names that programs give to their ranges with a number of its own in each."""

import polars as pl

_NUMBER = r"\d+"


def without_numbers(names: pl.Series) -> pl.Series:
    """`names` with "#" for each number: "step 1" and "step 2" are "step #"."""
    return names.str.replace_all(_NUMBER, "#")


def alike_together(names: pl.Series) -> pl.Series:
    """`names`, of those that differ in numbers only what is the same: "IO 190" alone stays."""
    short = without_numbers(names)
    several = (
        pl.DataFrame({"name": names, "short": short})
        .group_by("short")
        .agg(pl.col("name").n_unique() > 1)
        .filter("name")["short"]
    )
    together: pl.Series = names.zip_with(~short.is_in(several.implode()), short)
    return together
