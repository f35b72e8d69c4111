"""Gradients that are summed over replicas: in DistributedDataParallel's buckets, or otherwise."""

import polars as pl

from gpuprof.roofline.parallelism_figures import DataParallelism, GradientBucket
from gpuprof.roofline.ranks.parallelism.placed import in_forward, is_regular, messages_of

_ALL_REDUCE = "all-reduce"


def data_parallelism(
    group: str,
    ranks: int | None,
    own: pl.DataFrame,
    group_rows: pl.DataFrame,
    *,
    by_ddp: bool,
) -> DataParallelism | None:
    """The sums of one group: `own` its collectives on one rank, `group_rows` on all that are known.

    None unless all are all-reduces that begin in the backward pass or after it, alike in all steps.
    """
    if own["kind"].unique().to_list() != [_ALL_REDUCE] or own["backward_ns"].min() == 0:
        return None
    if own.select(in_forward().any()).item() or not is_regular(own):
        return None
    # What a rank waits for others is not the bucket's: the one that waits least tells.
    least = (
        _buckets(_alike(group_rows, own))
        .group_by("nth")
        .agg(pl.all().sort_by("duration_ns", maintain_order=True).first())
        .sort("nth")
    )
    dtypes = own["dtype"].unique()
    return DataParallelism(
        group=group,
        ranks=ranks,
        dtype=dtypes[0] if len(dtypes) == 1 else None,
        by_ddp=by_ddp,
        buckets=tuple(
            GradientBucket(
                message_bytes=row["message_bytes"],
                backward_done=row["done"],
                duration_ns=round(row["duration_ns"]),
                exposed_ns=round(row["exposed_ns"]),
            )
            for row in least.iter_rows(named=True)
        ),
    )


def _buckets(rows: pl.DataFrame) -> pl.DataFrame:
    """Means over the steps, by rank and place in the step."""
    duration_ns = pl.col("end_ns") - pl.col("start_ns")
    return rows.group_by("rank", "nth", maintain_order=True).agg(
        pl.col("message_bytes").first(),
        done=(pl.col("backward_done") / pl.col("backward_ns")).mean(),
        duration_ns=duration_ns.mean(),
        exposed_ns=pl.col("exposed_ns").mean(),
    )


def _alike(rows: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """`rows` of the ranks that have the same messages as `own` in all their steps."""
    sent = messages_of(own)["messages"][0]
    differing = messages_of(rows).filter(pl.col("messages") != sent)
    return rows.join(differing, on="rank", how="anti", maintain_order="left")
