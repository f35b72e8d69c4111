"""Which kernel launch a row of the counters table belongs to.

A key is (rank, kernel, grid, block, launch_index): the kernel's name, its launch configuration as
text "(x, y, z)", and the launch's number among those that are equal in all of these, in launch
order from 0.
"""

from typing import Final

import polars as pl

KEY: Final = ("rank", "kernel", "grid", "block", "launch_index")
_EQUAL: Final = ("rank", "kernel", "grid", "block")
# What Nsight Compute can profile; copies and sets are no kernels.
_KERNEL_KINDS: Final = ("kernel", "collective")


def launch_keys(kernels: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """The key columns of every kernel, with `row`, its position in `kernels`; in launch order.

    The order is that of the API calls in `launches`, which may be empty, then that of the work.
    """
    calls = (
        launches.filter(pl.col("correlation").is_not_null())
        .group_by("rank", "process", "correlation")
        .agg(pl.col("start_ns").min().alias("launched_ns"))
    )
    keyed = (
        kernels.with_row_index("row")
        .filter(pl.col("kind").is_in(_KERNEL_KINDS))
        .join(calls, on=["rank", "process", "correlation"], how="left")
        .sort(pl.coalesce("launched_ns", "start_ns"), "start_ns", "row", nulls_last=True)
        .select(
            "row",
            "rank",
            pl.col("name").alias("kernel"),
            _triple("grid").alias("grid"),
            _triple("block").alias("block"),
        )
    )
    return keyed.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over(*_EQUAL).alias("launch_index")
    )


def _triple(name: str) -> pl.Expr:
    """Null where a dimension is unknown."""
    return pl.format("({}, {}, {})", *(f"{name}_{axis}" for axis in "xyz"))
