"""One frame of all ranks."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from gpuprof.roofline.ranks.summary import RankSummary


def stacked(summaries: Sequence[RankSummary], name: str) -> pl.DataFrame:
    """The frames called `name` of `summaries`, at least one, below each other, with `rank`.

    A thousand small frames are not touched one by one: each call would cost more than their rows.
    """
    frames = [each.frame(name) for each in summaries]
    ranks = np.repeat([each.rank for each in summaries], [frame.height for frame in frames])
    return pl.concat(frames).with_columns(rank=pl.Series(ranks, dtype=pl.Int32))
