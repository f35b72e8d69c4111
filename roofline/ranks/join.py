"""Summaries of ranks -> `RanksAnalysis`: the one way for two ranks or a thousand."""

from collections import defaultdict
from collections.abc import Sequence

import polars as pl

from gpuprof.roofline.rank_figures import RankFigures, RanksAnalysis, RankStep
from gpuprof.roofline.ranks.clocks import align, arrival_skews
from gpuprof.roofline.ranks.common_steps import with_common_steps
from gpuprof.roofline.ranks.disagreements import disagreements
from gpuprof.roofline.ranks.explained_stragglers import launches_behind, stragglers
from gpuprof.roofline.ranks.own_times import own_times
from gpuprof.roofline.ranks.stragglers import tells_stragglers
from gpuprof.roofline.ranks.summary import RankSummary


def join(summaries: Sequence[RankSummary], found: pl.DataFrame) -> RanksAnalysis | None:
    """What `summaries` say together, with their `gpuprof.roofline.ranks.instances`.

    None for fewer than two.
    """
    if len(summaries) < 2:
        return None
    ordered = sorted(summaries, key=lambda each: each.rank)
    ordered, found = with_common_steps(ordered, found)
    world_size = max(each.process.world_size for each in ordered)
    held = {each.rank for each in ordered}
    by_rank = {each.rank: each for each in ordered}
    times = own_times(ordered, found)
    steps = _steps_by_rank(times)
    clocks = align(found)
    skews = {} if clocks is None else arrival_skews(found, clocks)
    last = found.filter(pl.col("wait_ns") == 0).group_by("rank").len()
    came_last = dict(last.iter_rows())
    shared = dict(found.filter("alike").group_by("rank").len().iter_rows())
    return RanksAnalysis(
        world_size=world_size,
        ranks=tuple(
            RankFigures(
                rank=each.rank,
                host=each.process.host,
                device_name=each.process.device_name,
                title=each.process.title,
                steps=steps.get(each.rank, ()),
                skew_ns=skews.get(each.rank),
                collectives=shared.get(each.rank, 0),
                came_last=came_last.get(each.rank, 0),
            )
            for each in ordered
        ),
        missing=tuple(rank for rank in range(world_size) if rank not in held),
        matched=found.height,
        collectives=sum(each.collectives.height for each in ordered),
        stragglers_told=tells_stragglers(times, found),
        stragglers=stragglers(by_rank, times, found),
        late_launches=launches_behind(by_rank, times, found),
        clocks=clocks,
        disagreements=disagreements(ordered, found),
    )


def _steps_by_rank(times: pl.DataFrame) -> dict[int, tuple[RankStep, ...]]:
    found: defaultdict[int, list[RankStep]] = defaultdict(list)
    for row in times.sort("rank", "step").iter_rows(named=True):
        found[row["rank"]].append(
            RankStep(
                index=row["step"],
                length_ns=row["length_ns"],
                own_ns=row["own_ns"],
                launch_ns=row["launch_ns"],
                wait_ns=row["wait_ns"],
            )
        )
    return {rank: tuple(steps) for rank, steps in found.items()}
