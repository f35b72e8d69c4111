"""The windows over which a device's own counters (GPM) were averaged, and which steps are theirs.

A reading holds the counters of a refresh before it. In 46 captures of an H200 the first work of a
program appeared in them up to 183 ms late (docs/decisions/0050). So what a window counts may have
begun so long before its first reading, and it belongs to steps that lie around all of it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.live.nvml.gpm import REFRESH_NS
from gpuprof.roofline.intervals import covered_ns, merged

RATES: Final = (
    *("sm_active_percent", "tensor_active_percent", "dram_active_percent"),
    *("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    *("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
)
# PCIe is also read without GPM, at one moment.
_OF_GPM: Final = tuple(name for name in RATES if not name.startswith("pcie"))
# How old the counters are at most when they are read.
LATE_NS: Final = 2 * REFRESH_NS
# Of a window: what may lie between timed steps, whose events are read in batches.
_BETWEEN: Final = 0.02


def windows_of(samples: pl.DataFrame) -> pl.DataFrame:
    """The rows of `samples`, of one device, that hold rates of GPM, with start_ns and end_ns.

    Without those that are shorter than the counters' refresh, which tell nothing. In captures of
    older versions a window begins at the row before, and when the first began is not known.
    """
    counted = samples.filter(pl.any_horizontal(pl.col(_OF_GPM).is_not_null())).sort("time_ns")
    return counted.with_columns(
        start_ns=pl.coalesce("window_start_ns", pl.col("time_ns").shift(1)),
        end_ns=pl.coalesce("window_end_ns", "time_ns"),
    ).filter(pl.col("end_ns") - pl.col("start_ns") >= REFRESH_NS)


def within(windows: pl.DataFrame, spans: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """Those of `windows` that count nothing but what happened in `spans`."""
    working = merged(*np.array(spans, np.int64).reshape(-1, 2).T)
    end = windows["end_ns"].to_numpy()
    earliest = windows["start_ns"].to_numpy() - LATE_NS
    covered = covered_ns(working, end) - covered_ns(working, earliest)
    return windows.filter(pl.Series(covered >= (1 - _BETWEEN) * (end - earliest), dtype=pl.Boolean))


def averages(windows: pl.DataFrame) -> Mapping[str, float | None]:
    """Of each rate, weighted by the windows' lengths; None where no window has it."""
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    means = windows.select(
        ((pl.col(name) * length).sum() / length.filter(pl.col(name).is_not_null()).sum()).alias(
            name
        )
        for name in RATES
    ).row(0, named=True)
    return {
        name: None if value is None or not np.isfinite(value) else float(value)
        for name, value in means.items()
    }


def activity_fields(windows: pl.DataFrame) -> dict[str, float | None]:
    """The averages of `windows` by the names that figures have: activity as fractions."""
    return {
        name.removesuffix("_percent"): None
        if rate is None
        else rate / 100
        if name.endswith("_percent")
        else rate
        for name, rate in averages(windows).items()
    }
