"""Experts that are divided over ranks: how evenly tokens are, and how evenly their work is."""

from typing import Final

import polars as pl

from gpuprof.roofline.parallelism_figures import ExpertParallelism, ExpertRank
from gpuprof.roofline.ranks.parallelism.placed import mean_bytes, mean_ns, steps_of

_UNEVEN: Final = "all-to-all of uneven shares"
_EVEN: Final = "all-to-all"
_EXPERT: Final = r"(?i)expert|\bmoe\b"


def expert_parallelism(
    group: str, own: pl.DataFrame, group_rows: pl.DataFrame, work: pl.DataFrame
) -> ExpertParallelism | None:
    """The ranks of a group, `own` one of them: tokens go to their experts and back.

    None unless all are all-to-alls in pairs, and either their shares are uneven or a module between
    them is called after experts: even ones could divide sequences.
    """
    kinds = set(own["kind"])
    if not kinds <= {_UNEVEN, _EVEN} or (own.height / steps_of(own)) % 2:
        return None
    between = _between(work, group_rows)
    named = between["module"].str.contains(_EXPERT).any()
    if _UNEVEN not in kinds and not named:
        return None
    steps = steps_of(own)
    expert_ns = dict(between.group_by("rank").agg(pl.col("device_ns").sum()).iter_rows())
    messages = group_rows.partition_by("rank", as_dict=True)
    return ExpertParallelism(
        group=group,
        calls=round(own.height / steps),
        exposed_ns=mean_ns(own, "exposed_ns", steps),
        ranks=tuple(
            ExpertRank(
                rank=rank,
                total_bytes=mean_bytes(rows["message_bytes"], steps),
                expert_ns=round(expert_ns.get(rank, 0) / steps),
            )
            for (rank,), rows in sorted(messages.items())
        ),
    )


def _between(work: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Work between each first all-to-all of a pair and its second."""
    pairs = rows.group_by("rank", "step", pl.col("nth") // 2).agg(
        begun=pl.col("segment").min(), ended=pl.col("segment").max()
    )
    # A row of segment s ended after s collectives had begun.
    inside = (pl.col("segment") > pl.col("begun")) & (pl.col("segment") <= pl.col("ended"))
    return work.join(pairs, on=("rank", "step")).filter(inside)
