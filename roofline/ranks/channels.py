"""What a rank needs for a step by itself, in channels of which each is compared over the ranks.

All of it together varies as much as whatever varies most: on a busy host any operator may take
twice as long. What a rank alone has, calls that the others do not make or a loader that it alone
waits for, stands out in a channel of its own.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from gpuprof.roofline.ranks.medians import median_with_absent
from gpuprof.roofline.ranks.stacked import stacked
from gpuprof.roofline.ranks.summary import OTHERS, RankSummary

OWN: Final = "own"
MORE_WORK: Final = "more work"
CHANNELS: Final = pl.Schema(
    {"rank": pl.Int32, "step": pl.Int32, "channel": pl.String, "nanoseconds": pl.Int64}
)
# One operator with its shapes, wherever the program calls it.
_CALL: Final = ("step", "name", "input_dims", "input_types", "phase")


def channels(summaries: Sequence[RankSummary], times: pl.DataFrame) -> pl.DataFrame:
    """The rows of `CHANNELS` for `summaries`, with their `own_times`; absent ones are 0.

    own: all of it. more work: calls that most ranks do not make, or as many of. Else what the host
    did at one place while the device had no work, as far as that is as long without the profiler.
    Of what was too small for a row of its own each rank adds up other causes: that is in all alone.
    """
    own = times.select("rank", "step", channel=pl.lit(OWN), nanoseconds="own_ns")
    place = pl.concat_str("kind", "culprit", "place", separator="\n")
    idle = (
        stacked(summaries, "idle")
        .filter(pl.col("keeps"), pl.col("culprit") != OTHERS)
        .group_by("rank", "step", channel=place)
        .agg(pl.col("nanoseconds").sum())
    )
    parts = [own, _more_work(summaries), idle]
    return pl.concat(
        [
            part.select(pl.col(name).cast(dtype) for name, dtype in CHANNELS.items())
            for part in parts
        ]
    )


def _more_work(summaries: Sequence[RankSummary]) -> pl.DataFrame:
    """The time of each rank's calls that are more than the median rank's."""
    calls = (
        stacked(summaries, "work")
        .filter(pl.col("name") != OTHERS)
        .group_by("rank", *_CALL)
        .agg(pl.col("calls").sum(), pl.col("device_ns").sum())
    )
    usual = calls.group_by(_CALL).agg(usual=median_with_absent("calls", len(summaries)))
    more = (pl.col("calls") - pl.col("usual")).clip(0)
    return (
        calls.join(usual, on=_CALL, nulls_equal=True)
        .group_by("rank", "step")
        .agg(nanoseconds=(pl.col("device_ns") * more / pl.col("calls")).sum().round())
        .with_columns(channel=pl.lit(MORE_WORK))
    )
