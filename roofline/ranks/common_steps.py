"""Steps of all ranks under one number, which profilers that began a step apart do not give."""

from collections import Counter
from collections.abc import Sequence

import polars as pl

from gpuprof.roofline.ranks.summary import RankSummary


def with_common_steps(
    summaries: Sequence[RankSummary], found: pl.DataFrame
) -> tuple[list[RankSummary], pl.DataFrame]:
    """`summaries` and their instances, each step numbered as in the lowest rank that shares it.

    Two ranks are in the same step where they are in the same collectives, which only sequence
    numbers tell.
    """
    shifts = {rank: shift for rank, shift in _shifts(found).items() if shift}
    if not shifts:
        return list(summaries), found
    moved = found.with_columns(
        step=pl.col("step")
        + pl.col("rank").replace_strict(shifts, default=0, return_dtype=pl.Int32)
    )
    return [_shifted(each, shifts.get(each.rank, 0)) for each in summaries], moved


def _shifts(found: pl.DataFrame) -> dict[int, int]:
    """What to add to each rank's step numbers: what most of its collectives say."""
    lowest = found.sort("rank").group_by("instance", maintain_order=True).first()
    pairs = (
        found.join(lowest.select("instance", first="rank", first_step="step"), on="instance")
        .filter(pl.col("rank") != pl.col("first"))
        .group_by("rank", "first", apart=pl.col("first_step") - pl.col("step"))
        .len()
        .sort("rank", "first", "apart")
    )
    votes: dict[int, Counter[int]] = {}
    shifts: dict[int, int] = {}
    for rank, first, apart, count in pairs.iter_rows():
        # A rank is behind those below it, whose shifts are known by then.
        if first not in shifts:
            shifts[first] = _most(votes.get(first))
        votes.setdefault(rank, Counter())[apart + shifts[first]] += count
    return {**{rank: _most(of_rank) for rank, of_rank in votes.items()}, **shifts}


def _most(votes: Counter[int] | None) -> int:
    return votes.most_common(1)[0][0] if votes else 0


def _shifted(summary: RankSummary, shift: int) -> RankSummary:
    if not shift:
        return summary
    own = pl.when(pl.col("phase") == "profiled").then(pl.col("index") + shift).otherwise("index")
    moved = pl.col("step") + shift
    return RankSummary(
        summary.process,
        summary.steps.with_columns(index=own),
        summary.collectives.with_columns(moved),
        summary.work.with_columns(moved),
        summary.idle.with_columns(moved),
        summary.states.with_columns(moved),
    )
