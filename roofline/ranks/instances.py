"""Which collective of one rank is the same as which of another.

The one matching that all figures across ranks rest on. Two are the same where the sequence numbers
in their process group are; without those, where they are the nth of their kind and size in their
step and group, and every rank has equally many of these.

A collective lasts on a rank from its arrival until the last one has come and the data is there. The
rank that came last waited for nobody, so the shortest time over the ranks is that of the transfer,
and the rest of each rank's time is waiting. That needs no common clock. It does not hold where
ranks do different things: broadcasts, reductions to one rank, sends and receives.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from gpuprof.roofline.ranks.collective_kinds import kinds_of
from gpuprof.roofline.ranks.stacked import stacked
from gpuprof.roofline.ranks.summary import COLLECTIVES, RankSummary

# In which all ranks do the same, and leave together.
_ALIKE: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier")
# Of one rank a row for each collective that all known ranks of its group recorded.
INSTANCES: Final = pl.Schema(
    [
        # A number for each collective of the job, in no particular order.
        ("instance", pl.Int64()),
        ("rank", pl.Int32()),
        *COLLECTIVES.items(),
        # Whether all ranks do the same in it.
        ("alike", pl.Boolean()),
        ("duration_ns", pl.Int64()),
        # The shortest duration over the ranks, and what is longer on this one; null where ranks do
        # different things.
        ("transfer_ns", pl.Int64()),
        ("wait_ns", pl.Int64()),
    ]
)
# The part of a group that must be there. Of a thousand ranks some traces are lost or cut off; of a
# few, none may be missing.
_ENOUGH: Final = 0.9
_GROUP: Final = ("group", "group_ranks", "group_size")
_SAME: Final = (*_GROUP, "common", "message_bytes", "step")


def instances(summaries: Sequence[RankSummary]) -> pl.DataFrame:
    """The rows of `INSTANCES` for all `summaries`: collectives that are complete.

    One that a rank of its group has not recorded is left out: who is waited for is not known then.
    Ranks of a group that recorded none of its collectives, since nothing of them could be read, may
    be a tenth of it; the shortest duration is then that of the ranks that are there. A group
    without a size is taken to be all ranks of the job.
    """
    if not summaries:
        return pl.DataFrame(schema=INSTANCES)
    sizes = {each.rank: each.process.world_size for each in summaries}
    rows = stacked(summaries, "collectives").with_columns(
        world_size=pl.col("rank").replace_strict(sizes, return_dtype=pl.Int32)
    )
    rows = rows.with_columns(pl.col("group_size").fill_null(pl.col("world_size")))
    # Where a source names no group, of two ranks there is one only.
    told = pl.col("group").is_not_null() | (pl.col("world_size") == 2)
    rows = _with_members(rows.filter(told))
    rows = rows.with_columns(common=kinds_of(rows["collective"]).fill_null(rows["collective"]))
    numbered = rows.filter(pl.col("sequence").is_not_null())
    # The order is a column first: older polars takes no window within a window (1.31 to 1.33).
    ordered = rows.filter(pl.col("sequence").is_null()).with_columns(order_ns=_order())
    ordered = ordered.with_columns(
        nth=pl.col("order_ns").rank("ordinal").over("rank", *_SAME),
        many=pl.len().over("rank", *_SAME),
    )
    ordered = ordered.filter(pl.col("many").n_unique().over(_SAME) == 1)
    matched = [
        _complete(numbered, (*_GROUP, "common", "sequence")),
        _complete(ordered, (*_SAME, "nth")),
    ]
    first = 0
    parts = []
    for part in matched:
        parts.append(part.with_columns(pl.col("instance") + first))
        first += part["instance"].n_unique()
    found = pl.concat(parts, how="diagonal").with_columns(
        alike=pl.col("common").is_in(_ALIKE),
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    transfer_ns = pl.col("duration_ns").min().over("instance")
    return found.with_columns(
        transfer_ns=pl.when("alike").then(transfer_ns),
        wait_ns=pl.when("alike").then(pl.col("duration_ns") - transfer_ns),
    ).select(pl.col(name).cast(dtype) for name, dtype in INSTANCES.items())


def waits_of(found: pl.DataFrame, rank: int) -> pl.DataFrame:
    """What collectives of `rank` wait for others, of `instances`: kernel_row and rank_wait_ns."""
    return found.filter(
        pl.col("rank") == rank, pl.col("wait_ns").is_not_null(), pl.col("kernel_row").is_not_null()
    ).select("kernel_row", rank_wait_ns="wait_ns")


def _with_members(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with the members of a group also on ranks that do not name them, if others do.

    Where several groups have one name, whose members are missing is unknown.
    """
    named = pl.col("group_ranks").drop_nulls()
    group = ("group", "group_size")
    only = named.n_unique().over(group) == 1
    return rows.with_columns(
        group_ranks=pl.coalesce("group_ranks", pl.when(only).then(named.first().over(group)))
    )


def _order() -> pl.Expr:
    """When the rank called it; where that is not known of any launch, when it began."""
    launched = pl.col("launch_ns").is_not_null().all().over("rank")
    return pl.when(launched).then("launch_ns").otherwise("start_ns")


def _complete(rows: pl.DataFrame, same: tuple[str, ...]) -> pl.DataFrame:
    """Those of `rows` that each known rank of the group has once, numbered by equal `same`."""
    there = pl.len().over(same)
    everyone = (
        (there == pl.col("rank").n_unique().over(same))
        & (there == pl.col("rank").n_unique().over(_GROUP))
        & there.is_between(_ENOUGH * pl.col("group_size"), pl.col("group_size"))
    )
    kept = rows.filter(everyone & (pl.col("group_size") > 1))
    numbers = kept.select(same).unique(maintain_order=True).with_row_index("instance")
    return kept.join(
        numbers.cast({"instance": pl.Int64}), on=same, nulls_equal=True, maintain_order="left"
    )
