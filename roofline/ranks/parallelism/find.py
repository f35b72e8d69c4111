"""Summaries of ranks -> how the work of their job is divided."""

from collections.abc import Sequence

import polars as pl

from gpuprof.roofline.parallelism_figures import (
    DataParallelism,
    ExpertParallelism,
    GroupExchanges,
    Parallelism,
)
from gpuprof.roofline.ranks.parallelism.data import data_parallelism
from gpuprof.roofline.ranks.parallelism.exchanges import sharded_parameters, tensor_parallelism
from gpuprof.roofline.ranks.parallelism.experts import expert_parallelism
from gpuprof.roofline.ranks.parallelism.pipeline import pipelining
from gpuprof.roofline.ranks.parallelism.placed import GROUP, JobFrames
from gpuprof.roofline.ranks.summary import RankSummary


def find_parallelism(summaries: Sequence[RankSummary], rank: int) -> Parallelism | None:
    """The groups of `rank`, of which `summaries` has any other ranks too; None without any known.

    A pipeline and the experts of a group need the summaries of all their ranks.
    """
    if all(each.rank != rank or each.collectives.is_empty() for each in summaries):
        return None
    frames = JobFrames(summaries)
    data: list[DataParallelism] = []
    sharded: list[GroupExchanges] = []
    tensor: list[GroupExchanges] = []
    experts: list[ExpertParallelism] = []
    of_rank = frames.collectives.filter(pl.col("rank") == rank)
    work = frames.work.filter(pl.col("rank") == rank)
    by_ddp = any(each.process.uses_ddp for each in summaries if each.rank == rank)
    for (name, _, size), own in of_rank.group_by(GROUP, maintain_order=True):
        group = str(name or "")
        ranks = size if isinstance(size, int) else None
        known = own.select(GROUP).head(1)
        rows = frames.collectives.join(
            known, on=GROUP, how="semi", nulls_equal=True, maintain_order="left"
        )
        buckets = data_parallelism(group, ranks, own, rows, by_ddp=by_ddp)
        data += [buckets] if buckets else []
        parameters = sharded_parameters(group, ranks, own)
        sharded += [parameters] if parameters else []
        activations = tensor_parallelism(group, ranks, own, work)
        tensor += [activations] if activations else []
        tokens = expert_parallelism(group, own, rows, frames.work)
        experts += [tokens] if tokens else []
    found = Parallelism(
        data=tuple(data),
        sharded=tuple(sharded),
        tensor=tuple(tensor),
        pipeline=pipelining(frames),
        experts=tuple(experts),
    )
    return None if found == Parallelism() else found
