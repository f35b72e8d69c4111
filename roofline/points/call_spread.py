"""How long the single calls behind a point took."""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from gpuprof.roofline.spread_figures import CallSpread

_QUANTILES: Final = {
    "shortest_ns": 0.0,
    "lower_quartile_ns": 0.25,
    "median_ns": 0.5,
    "upper_quartile_ns": 0.75,
    "longest_ns": 1.0,
}


def spreads_by(kernels: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[Any, ...], CallSpread]:
    """The spread of each group of `kernels` with equal `keys`; groups of one call have none.

    What no operator launched counts as a call each. Quartiles are interpolated.
    """
    own_call = -1 - pl.int_range(pl.len())
    calls = (
        # Numbers, which are quicker to group by than texts.
        kernels.select(*keys, "duration_ns", call=pl.coalesce("owner_id", own_call))
        .with_columns(pl.col(pl.String).cast(pl.Categorical))
        .group_by(*keys, "call", maintain_order=True)
        .agg(pl.col("duration_ns").sum())
    )
    groups = calls.group_by(*keys, maintain_order=True).agg(
        pl.len().alias("calls"),
        *(
            pl.col("duration_ns").quantile(share, "linear").round().cast(pl.Int64).alias(name)
            for name, share in _QUANTILES.items()
        ),
    )
    return {
        tuple(row[key] for key in keys): CallSpread(
            calls=row["calls"], **{name: row[name] for name in _QUANTILES}
        )
        for row in groups.filter(pl.col("calls") > 1).iter_rows(named=True)
    }
