"""How long the single calls behind a point took."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.roofline.row_groups import row_groups
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
    if kernels.is_empty():
        return {}
    # Numbers, which are quicker to group by than texts: each group has that of its first row.
    coded = kernels.select(keys).with_columns(pl.col(pl.String).cast(pl.Categorical))
    group = coded.with_row_index("row").select(pl.col("row").first().over(keys)).to_series()
    lengths_ns, groups = _calls(
        kernels["duration_ns"].fill_null(0).to_numpy(),
        group.cast(pl.Int64).to_numpy(),
        kernels.select(pl.coalesce("owner_id", -1 - pl.int_range(pl.len()))).to_series().to_numpy(),
    )
    rows, counts = np.unique(groups, return_counts=True)
    found = _quantiles(lengths_ns, counts)
    return {
        key: CallSpread(calls=number, **dict(zip(_QUANTILES, quantiles, strict=True)))
        for key, number, quantiles in zip(
            kernels.select(keys)[rows].iter_rows(), counts.tolist(), found.iter_rows(), strict=True
        )
        if number > 1
    }


def _calls(durations_ns: Integers, groups: Integers, calls: Integers) -> tuple[Integers, Integers]:
    """The length of each call in each group, and its group: by group, the shortest first."""
    order, begins = row_groups(groups, calls)
    lengths_ns = np.add.reduceat(durations_ns[order], begins)
    groups = groups[order[begins]]
    by_length = np.lexsort((lengths_ns, groups))
    return lengths_ns[by_length], groups[by_length]


def _quantiles(ordered: Integers, counts: Integers) -> pl.DataFrame:
    """The columns of `_QUANTILES`, a row a group.

    `ordered` are the values of the groups one after the other, `counts` how many each has.
    """
    last = counts - 1
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
