"""How long the single calls behind a point took."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
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
    groups = (
        calls.group_by(*keys, maintain_order=True)
        .agg(pl.col("duration_ns").sort(), calls=pl.len())
        .filter(pl.col("calls") > 1)
    )
    if groups.is_empty():
        return {}
    found = _quantiles(groups["duration_ns"].explode(), groups["calls"].to_numpy())
    names = groups.select(keys).with_columns(pl.col(pl.Categorical).cast(pl.String))
    return {
        key: CallSpread(calls=number, **dict(zip(_QUANTILES, quantiles, strict=True)))
        for key, number, quantiles in zip(
            names.iter_rows(), groups["calls"].to_list(), found.iter_rows(), strict=True
        )
    }


def _quantiles(values: pl.Series, counts: npt.NDArray[np.uint32]) -> pl.DataFrame:
    """The columns of `_QUANTILES`, a row a group.

    `values` are those of the groups one after the other, in order, `counts` how many each has.
    """
    ordered, last = values.to_numpy(), counts.astype(np.int64) - 1
    first = np.cumsum(last + 1) - last - 1
    columns = {}
    for name, share in _QUANTILES.items():
        position = last * share
        below = np.floor(position).astype(np.int64)
        low, high = (
            ordered[first + index].astype(np.float64)
            for index in (below, np.ceil(position).astype(np.int64))
        )
        columns[name] = (position - below) * (high - low) + low
    return pl.DataFrame(columns).select(pl.all().round().cast(pl.Int64))
