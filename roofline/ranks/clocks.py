"""How far the clocks of ranks are apart, from the ends of collectives that they share.

All ranks leave an all-reduce together, within some microseconds, whatever their clocks say. So the
difference of two clocks is the median difference of these ends, and how much the ends differ beyond
that is how well it is known. Clocks also run at different rates, which shows in captures of seconds
and more: then the difference is a line.

Ranks without a shared collective have no common clock. Nor have ranks whose ends lie further apart
than their collectives take, however their clocks are shifted: these are not the same ends.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuprof.roofline.rank_figures import ClockAlignment, RankClock

_GROUP: Final = ("group", "group_ranks", "group_size")
# So many ends tell a line, and it counts where it explains so many times what is left.
_ENDS_FOR_A_LINE: Final = 6
_ENDS_OF_A_LINE: Final = 128
_CLEAR: Final = 4
# In ns a second: crystals are right within 100 parts in a million, and time servers correct clocks
# by 500 at most (adjtimex(2)).
_FASTEST_DRIFT: Final = 1e6
# Between the median of a distance from the median and a standard deviation, of a normal one.
_NORMAL: Final = 1.4826
_RESIDUAL: Final = 95

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Clock:
    """What to take from a rank's times for those of its reference."""

    offset_ns: int
    # A second of this clock is longer by so many nanoseconds; 0 where no line is clear.
    drift: float
    # On the rank's own clock: where the offset is right.
    middle_ns: int
    residuals_ns: _Floats
    # What the shared collectives take without waiting.
    transfer_ns: float

    @property
    def is_known(self) -> bool:
        """Whether the ends are nearer to each other than the collectives are long."""
        return float(np.median(np.abs(self.residuals_ns))) <= self.transfer_ns


def align(found: pl.DataFrame) -> ClockAlignment | None:
    """The clocks of the ranks in `found`, `gpuprof.roofline.ranks.instances`.

    None where no collective is known of several ranks.
    """
    shared = found.filter("alike")
    if shared.is_empty():
        return None
    groups = sorted(
        (_of_group(own) for _, own in shared.group_by(_GROUP, maintain_order=True)),
        key=lambda clocks: (-len(clocks), min(clocks)),
    )
    ends = dict(shared.group_by("rank").len().iter_rows())
    parts = _joined(groups)
    largest = max(parts, key=lambda part: (len(part), -min(part)))
    reference = min(largest)
    known = {rank: clock for rank, clock in largest.items() if clock.is_known}
    left_out = sorted(set(shared["rank"]) - set(known))
    if len(known) < 2:
        return ClockAlignment(
            reason="the ends of shared collectives lie further apart than the collectives take"
        )
    first = largest[reference] if reference in known else known[min(known)]
    clocks = tuple(
        RankClock(
            rank=rank,
            offset_ns=clock.offset_ns - first.offset_ns,
            drift=clock.drift - first.drift,
            middle_ns=clock.middle_ns,
            residual_ns=round(float(np.percentile(np.abs(clock.residuals_ns), _RESIDUAL))),
            ends=ends[rank],
        )
        for rank, clock in sorted(known.items())
    )
    residuals = np.concatenate([np.abs(known[rank].residuals_ns) for rank in known])
    return ClockAlignment(
        reference=reference if reference in known else min(known),
        clocks=clocks,
        residual_ns=round(float(np.percentile(residuals, _RESIDUAL))),
        unaligned=tuple(left_out),
        reason=_reason(left_out, largest),
    )


def on_common_clock(times_ns: pl.DataFrame, alignment: ClockAlignment) -> pl.DataFrame:
    """`times_ns` with start_ns and end_ns on the reference's clock, of aligned ranks alone."""
    clocks = pl.DataFrame(
        [(each.rank, each.offset_ns, each.drift, each.middle_ns) for each in alignment.clocks],
        schema={
            "rank": pl.Int32,
            "offset_ns": pl.Int64,
            "drift": pl.Float64,
            "middle_ns": pl.Int64,
        },
        orient="row",
    )

    def shifted(column: str) -> pl.Expr:
        since = pl.col(column) - pl.col("middle_ns")
        drifted = (pl.col("drift") * since / 1e9).round().cast(pl.Int64)
        return pl.col(column) - pl.col("offset_ns") - drifted

    return (
        times_ns.join(clocks, on="rank", how="inner", maintain_order="left")
        .with_columns(start_ns=shifted("start_ns"), end_ns=shifted("end_ns"))
        .drop("offset_ns", "drift", "middle_ns")
    )


def arrival_skews(found: pl.DataFrame, alignment: ClockAlignment) -> dict[int, int]:
    """How much later than the median of its group each aligned rank comes to the collectives."""
    if not alignment.clocks:
        return {}
    shared = on_common_clock(found, alignment)
    ranks = found.group_by("instance").agg(all_ranks=pl.len())
    whole = shared.join(ranks, on="instance").filter(
        pl.len().over("instance") == pl.col("all_ranks")
    )
    # Times of the Unix epoch are beyond the digits of a float.
    since = pl.col("start_ns") - pl.col("start_ns").min().over("instance")
    late = whole.with_columns(since_ns=since).with_columns(
        skew_ns=pl.col("since_ns") - pl.col("since_ns").median().over("instance")
    )
    medians = late.group_by("rank").agg(pl.col("skew_ns").median())
    return {rank: round(skew_ns) for rank, skew_ns in medians.iter_rows()}


def _reason(left_out: list[int], largest: Mapping[int, _Clock]) -> str:
    if not left_out:
        return ""
    if all(rank in largest for rank in left_out):
        return "the ends of their collectives lie further apart than the collectives take"
    return "they share no collective with the others"


def _of_group(rows: pl.DataFrame) -> dict[int, _Clock]:
    """The clocks of the ranks of one group, against the lowest rank of it."""
    ranks = sorted(rows["rank"].unique())
    table = rows.pivot("rank", index="instance", values="end_ns", sort_columns=False)
    table = table.drop_nulls()
    if table.is_empty():
        return {}
    own = np.stack([table[str(rank)].to_numpy() for rank in ranks], axis=1)
    transfer_ns = float(np.median(rows["transfer_ns"].to_numpy()))
    middles = np.array([int(np.median(column - column[0])) + int(column[0]) for column in own.T])
    # Whole numbers first: hours in ns are beyond a float's digits.
    first = own - own[:, :1]
    offsets = np.array(
        [int(column[0]) + round(np.median(column - column[0])) for column in first.T]
    )
    apart = (first - offsets).astype(np.float64)
    residuals = apart - np.median(apart, axis=1, keepdims=True)
    drifts = np.zeros(len(ranks))
    for column in range(len(ranks)):
        seconds = (own[:, column] - middles[column]) / 1e9
        drifts[column], residuals[:, column] = _line(seconds, residuals[:, column])
    return {
        rank: _Clock(
            int(offsets[column]),
            float(drifts[column]),
            int(middles[column]),
            residuals[:, column],
            transfer_ns,
        )
        for column, rank in enumerate(ranks)
    }


def _line(seconds: _Floats, apart_ns: _Floats) -> tuple[float, _Floats]:
    """The slope of `apart_ns` in ns a second where one is clear, and what is left of it.

    By Theil and Sen: the median slope between two of the ends, which outliers do not move.
    """
    level = apart_ns - np.median(apart_ns)
    span = float(np.ptp(seconds))
    if len(seconds) < _ENDS_FOR_A_LINE or not span:
        return 0.0, level
    chosen = np.linspace(0, len(seconds) - 1, min(len(seconds), _ENDS_OF_A_LINE)).astype(int)
    one, other = np.triu_indices(len(chosen), 1)
    runs = seconds[chosen][other] - seconds[chosen][one]
    rises = apart_ns[chosen][other] - apart_ns[chosen][one]
    slope = float(np.median(rises[runs != 0] / runs[runs != 0]))
    straight = apart_ns - slope * seconds
    straight = straight - np.median(straight)
    left = _NORMAL * float(np.median(np.abs(straight)))
    if abs(slope) > _FASTEST_DRIFT or abs(slope) * span <= _CLEAR * left:
        return 0.0, level
    return slope, straight


def _joined(groups: list[dict[int, _Clock]]) -> list[dict[int, _Clock]]:
    """Groups that share a rank as one, against one reference; the best known clock of each rank."""
    parts: list[dict[int, _Clock]] = []
    for group in groups:
        merged = group
        others = []
        for part in parts:
            common = next(iter(sorted(set(part) & set(merged))), None)
            if common is None:
                others.append(part)
                continue
            merged = {**dict(_shifted(merged, part[common], merged[common])), **part}
        parts = [*others, merged] if merged else others
    return parts


def _shifted(
    clocks: Mapping[int, _Clock], there: _Clock, here: _Clock
) -> Iterator[tuple[int, _Clock]]:
    """`clocks` against the reference of another group, in which a common rank has `there`."""
    for rank, clock in clocks.items():
        yield (
            rank,
            _Clock(
                clock.offset_ns + there.offset_ns - here.offset_ns,
                clock.drift + there.drift - here.drift,
                clock.middle_ns,
                clock.residuals_ns,
                clock.transfer_ns,
            ),
        )
