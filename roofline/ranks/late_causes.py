"""What a late rank has more of than the others, where they wait for it, and its device then."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from statistics import median
from typing import Any, Final

import polars as pl

from gpuprof.collectors.live.nvml.slowdowns import slowdown_reasons
from gpuprof.collectors.place_text import place_text
from gpuprof.roofline.bus_bandwidth import find_collective
from gpuprof.roofline.rank_figures import LateAt, LateCause
from gpuprof.roofline.ranks.medians import median_with_absent
from gpuprof.roofline.ranks.stacked import stacked
from gpuprof.roofline.ranks.summary import OTHERS, RankSummary

_WORK: Final = ("name", "input_dims", "input_types", "phase", "module", "file", "line")
_IDLE: Final = ("kind", "culprit", "place")
_MOST: Final = 6
# Of what the rank is late by: smaller causes are left out.
_WORTH_SAYING: Final = 0.05


def late_causes(
    late: RankSummary,
    others: Sequence[RankSummary],
    steps: Sequence[int],
    late_ns: int,
) -> tuple[LateCause, ...]:
    """What `late` has more of in `steps` than the median of `others`, the largest first.

    Of operators with other calls, the time of these calls; of operators with the same calls what
    they take longer. Idle time that the profiler lengthens is no cause.
    """
    found = [*_more_work(late, others, steps), *_more_idle(late, others, steps)]
    worth = [each for each in found if each.longer_ns > _WORTH_SAYING * late_ns]
    return tuple(sorted(worth, key=lambda each: -each.longer_ns)[:_MOST])


def late_at(
    found: pl.DataFrame, rank: int, group: Sequence[int], steps: Sequence[int]
) -> LateAt | None:
    """The collective of `group` in which the others wait most for `rank`, in the mean of `steps`.

    `found` are the instances of all ranks.
    """
    shared = found.filter("alike").with_columns(
        ranks=pl.col("rank").sort().over("instance", mapping_strategy="join")
    )
    own = shared.filter(
        pl.col("ranks") == pl.lit(list(group), pl.List(pl.Int32)), pl.col("step").is_in(steps)
    )
    mine = pl.col("rank") == rank
    waited = (
        own.group_by("instance")
        .agg(
            waited_ns=pl.col("wait_ns").filter(~mine).median()
            - pl.col("wait_ns").filter(mine).first(),
            step=pl.col("step").filter(mine).first(),
            start_ns=pl.col("start_ns").filter(mine).first(),
            collective=pl.col("collective").filter(mine).first(),
            message_bytes=pl.col("message_bytes").filter(mine).first(),
        )
        .sort("start_ns")
        .with_columns(nth=pl.int_range(1, pl.len() + 1).over("step"), of=pl.len().over("step"))
    )
    places = (
        waited.group_by("nth", "of", "collective", "message_bytes")
        .agg(pl.col("waited_ns").sum())
        .sort("waited_ns", "nth", descending=[True, False])
    )
    if places.is_empty():
        return None
    row = places.row(0, named=True)
    return LateAt(
        collective=_spelled(row["collective"]),
        message_bytes=row["message_bytes"],
        nth=row["nth"],
        of=row["of"],
        waited_ns=round(row["waited_ns"] / len(steps)),
    )


def _spelled(collective: str) -> str:
    known = find_collective(collective)
    return collective if known is None else known.name


def clock_mhz(summary: RankSummary, steps: Sequence[int]) -> int | None:
    """The median clock of its device in `steps`."""
    return _rounded_median(_states(summary, steps)["sm_clock_mhz"].drop_nulls().to_list())


def usual_clock_mhz(summaries: Sequence[RankSummary], steps: Sequence[int]) -> int | None:
    """The median of the ranks' clocks in `steps`."""
    clocks = [clock_mhz(each, steps) for each in summaries]
    return _rounded_median([clock for clock in clocks if clock is not None])


def slowed_by(summary: RankSummary, steps: Sequence[int]) -> tuple[str, ...] | None:
    """All that lowered its clock in `steps`."""
    seen = _states(summary, steps)["throttle_reasons"].drop_nulls().to_list()
    return slowdown_reasons(reduce(or_, seen)) if seen else None


def _states(summary: RankSummary, steps: Sequence[int]) -> pl.DataFrame:
    return summary.states.filter(pl.col("step").is_in(steps))


def _rounded_median(values: Sequence[int]) -> int | None:
    return round(median(values)) if values else None


def _more_work(
    late: RankSummary, others: Sequence[RankSummary], steps: Sequence[int]
) -> list[LateCause]:
    return [
        LateCause(
            kind="slower work" if row["calls"] == row["usual_calls"] else "more work",
            what=row["name"] if row["name"] != OTHERS else "small operators together",
            input_dims=row["input_dims"] or "",
            input_types=row["input_types"] or "",
            module=row["module"] or "",
            place=place_text(row["file"], row["line"]),
            calls=row["calls"],
            usual_calls=row["usual_calls"],
            nanoseconds=row["device_ns"],
            usual_ns=row["usual_device_ns"],
        )
        for row in _compared(late, others, steps, "work", _WORK, ("calls", "device_ns"))
    ]


def _more_idle(
    late: RankSummary, others: Sequence[RankSummary], steps: Sequence[int]
) -> list[LateCause]:
    return [
        LateCause(
            kind="idle",
            what=(row["culprit"] if row["culprit"] != OTHERS else f"small causes of {row['kind']}"),
            place=row["place"] or "",
            nanoseconds=row["nanoseconds"],
            usual_ns=row["usual_nanoseconds"],
        )
        for row in _compared(late, others, steps, "idle", _IDLE, ("nanoseconds",))
    ]


def _compared(
    late: RankSummary,
    others: Sequence[RankSummary],
    steps: Sequence[int],
    frame: str,
    key: tuple[str, ...],
    sums: tuple[str, ...],
) -> list[dict[str, Any]]:
    """Of each `key` the `sums` of `late` in its median step, and usual_* of the median other."""
    own = _of_median_step([late], steps, frame, key, sums)
    theirs = _of_median_step(others, steps, frame, key, sums)
    usual = (
        theirs.join(own, on=key, how="semi", nulls_equal=True)
        .group_by(key)
        .agg(median_with_absent(name, len(others)).alias(f"usual_{name}") for name in sums)
    )
    found = own.join(usual, on=key, how="left", nulls_equal=True, maintain_order="left")
    return found.with_columns(pl.col(f"usual_{name}").fill_null(0) for name in sums).to_dicts()


def _of_median_step(
    summaries: Sequence[RankSummary],
    steps: Sequence[int],
    frame: str,
    key: tuple[str, ...],
    sums: tuple[str, ...],
) -> pl.DataFrame:
    """The `sums` of each rank and `key` in the median of `steps`: one that lacks them has none."""
    rows = stacked(summaries, frame).filter(pl.col("step").is_in(steps))
    if "keeps" in rows.columns:
        rows = rows.filter("keeps")
    return (
        rows.group_by(*key, "rank", "step")
        .agg(pl.col(name).sum() for name in sums)
        .group_by(*key, "rank", maintain_order=True)
        .agg(median_with_absent(name, len(steps)).alias(name) for name in sums)
    )
