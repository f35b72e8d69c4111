"""What each rank needs for each of its steps by itself, without what it waits for others."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from gpuprof.roofline.ranks.stacked import stacked
from gpuprof.roofline.ranks.summary import RankSummary

OWN_TIMES: Final = pl.Schema(
    {
        "rank": pl.Int32,
        "step": pl.Int32,
        "length_ns": pl.Int64,
        # Device work beside collectives, and time without work that is as long without the
        # profiler.
        "own_ns": pl.Int64,
        # Time without work that the profiler lengthens.
        "launch_ns": pl.Int64,
        # In any collective for others; null where none of the step's is known of all its ranks.
        "wait_ns": pl.Int64,
    }
)


def own_times(summaries: Sequence[RankSummary], found: pl.DataFrame) -> pl.DataFrame:
    """One row for each profiled step of each rank, with `found`, their instances."""
    launching = (
        stacked(summaries, "idle")
        .filter(~pl.col("keeps"))
        .group_by("rank", "step")
        .agg(launch_ns=pl.col("nanoseconds").sum())
    )
    steps = stacked(summaries, "steps").filter(pl.col("begun_ns").is_not_null())
    of_step = ("rank", "step")
    return (
        steps.rename({"index": "step"})
        .join(launching, on=of_step, how="left", maintain_order="left")
        .join(waits_of_steps(found), on=of_step, how="left", maintain_order="left")
        .with_columns(pl.col("launch_ns").fill_null(0))
        .with_columns(
            length_ns=pl.col("done_ns") - pl.col("begun_ns"),
            own_ns=pl.col("working_ns") + pl.col("idle_ns") - pl.col("launch_ns"),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in OWN_TIMES.items())
    )


def waits_of_steps(found: pl.DataFrame) -> pl.DataFrame:
    """Columns rank, step and wait_ns: how long the rank waits in any collective of `found`.

    Of collectives in flight together the time in which several wait counts once.
    """
    waits = (
        found.filter(pl.col("wait_ns").is_not_null())
        .sort("start_ns")
        .with_columns(until_ns=pl.col("start_ns") + pl.col("wait_ns"))
    )
    before_ns = pl.col("until_ns").cum_max().shift(1).over("rank", "step")
    begins_ns = pl.max_horizontal("start_ns", before_ns)
    return (
        waits.with_columns(alone_ns=(pl.col("until_ns") - begins_ns).clip(0))
        .group_by("rank", "step", maintain_order=True)
        .agg(wait_ns=pl.col("alone_ns").sum())
    )
