"""The stragglers of a job with their causes."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median

import polars as pl

from gpuprof.roofline.classes import DATA_LOADER
from gpuprof.roofline.rank_figures import LateLaunches, RanksAnalysis, Straggler
from gpuprof.roofline.ranks.channels import channels
from gpuprof.roofline.ranks.late_causes import (
    clock_mhz,
    late_at,
    late_causes,
    slowed_by,
    usual_clock_mhz,
)
from gpuprof.roofline.ranks.stragglers import (
    REPEATS_WITHIN,
    LateRank,
    late_launches,
    late_ranks,
)
from gpuprof.roofline.ranks.summary import RankSummary


def stragglers(
    summaries: Mapping[int, RankSummary], times: pl.DataFrame, found: pl.DataFrame
) -> tuple[Straggler, ...]:
    """The ranks that make others wait, those first that cost most, with what makes them late.

    `times` are the own times of all ranks, `found` their instances. Without those whose loader
    alone makes them late, and only while they are profiled.
    """
    by_channel = channels(list(summaries.values()), times)
    late = [each for each in late_ranks(times, by_channel, found) if each.late_steps]
    return tuple(
        _explained(each, loading_ns, summaries, times, found)
        for each in late
        for loading_ns in [_longer_loading_ns(each, summaries)]
        if not loading_ns
        or each.per_step_ns - loading_ns > REPEATS_WITHIN * _mean_length_ns(times, each.group)
    )


def launches_behind(
    summaries: Mapping[int, RankSummary], times: pl.DataFrame, found: pl.DataFrame
) -> tuple[LateLaunches, ...]:
    """The ranks that launch late under the profiler, with what may be left of that without it."""
    return tuple(
        LateLaunches(
            rank=each.rank,
            late_ns=each.late_ns,
            at_most_ns=_at_most_ns(each.late_ns, [summaries[each.rank]], times),
        )
        for each in late_launches(times, found)
    )


def late_ns(ranks: RanksAnalysis | None, rank: int) -> int:
    """What stragglers make `rank` wait, in the mean of its steps."""
    known = () if ranks is None else ranks.stragglers
    return sum(each.per_step_ns for each in known if rank in each.waiting)


def _explained(
    late: LateRank,
    loading_ns: int,
    summaries: Mapping[int, RankSummary],
    times: pl.DataFrame,
    found: pl.DataFrame,
) -> Straggler:
    own = summaries[late.rank]
    others = [summaries[rank] for rank in late.group if rank != late.rank]
    steps = late.late_steps
    late_ns = round(fmean(ns for ns in late.late_ns if ns))
    step_ns = _mean_length_ns(times, late.group)
    lasting_ns = max(0, late.per_step_ns - loading_ns)
    return Straggler(
        rank=late.rank,
        pattern=late.pattern,
        every=late.every,
        steps=steps,
        of_steps=len(late.steps),
        late_ns=late_ns,
        per_step_ns=late.per_step_ns,
        beyond_next_ns=late.beyond_next_ns,
        waiting=tuple(rank for rank in late.group if rank != late.rank),
        at_most_ns=_at_most_ns(lasting_ns, others, times),
        step_ns=step_ns,
        step_without_ns=step_ns - late.beyond_next_ns,
        at=late_at(found, late.rank, late.group, steps),
        causes=late_causes(own, others, steps, late_ns),
        sm_clock_mhz=clock_mhz(own, steps),
        usual_sm_clock_mhz=usual_clock_mhz(others, steps),
        slowed_by=slowed_by(own, steps),
    )


def _mean_length_ns(times: pl.DataFrame, ranks: Sequence[int]) -> int:
    lengths_ns: list[int] = times.filter(pl.col("rank").is_in(ranks))["length_ns"].to_list()
    return round(fmean(lengths_ns))


def _at_most_ns(late_ns: int, summaries: Sequence[RankSummary], times: pl.DataFrame) -> int | None:
    """What of `late_ns` a step without the profiler has room for, in the median of the ranks."""
    rooms_ns = [_room_ns(summary, times) for summary in summaries]
    known = [room_ns for room_ns in rooms_ns if room_ns is not None]
    return min(late_ns, round(median(known))) if known else None


def _room_ns(summary: RankSummary, times: pl.DataFrame) -> int | None:
    """What a step without the profiler has room for beside what the rank needs by itself."""
    timed = summary.steps.filter(pl.col("phase") == "timed")
    lengths = [
        device_ns if device_ns is not None else host_ns
        for device_ns, host_ns in timed.select("device_ns", "host_ns").iter_rows()
    ]
    known: list[int] = [length for length in lengths if length is not None]
    own: list[int] = times.filter(pl.col("rank") == summary.rank)["own_ns"].to_list()
    if not known or not own:
        return None
    return max(0, round(median(known) - median(own)))


def _longer_loading_ns(late: LateRank, summaries: Mapping[int, RankSummary]) -> int:
    """What a device waits for data in the mean profiled step beyond others and the timed steps.

    The host's time for the next batch is counted in timed steps, too: the device waits no longer.
    """
    own = summaries[late.rank]
    timed = own.steps.filter(pl.col("phase") == "timed")["loader_ns"].drop_nulls()
    timed_ns: list[int] = timed.to_list()
    if not timed_ns:
        return 0
    of_others = [_loading_ns(summaries[rank]) for rank in late.group if rank != late.rank]
    return max(0, round(_loading_ns(own) - max(median(timed_ns), median(of_others))))


def _loading_ns(summary: RankSummary) -> float:
    """What its device waits for data in the mean profiled step."""
    profiled = int((summary.steps["phase"] == "profiled").sum())
    idle = summary.idle.filter(pl.col("kind") == DATA_LOADER, pl.col("keeps"))
    return int(idle["nanoseconds"].sum()) / max(1, profiled)
