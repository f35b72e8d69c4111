"""How busy the parts of a device were within a step, by counters in windows shorter than it."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from gpuprof.roofline.timeline.window import Window
from gpuprof.roofline.timeline_figures import TimelineActivity, TimelinePart

_PARTS: Final[dict[TimelinePart, str]] = {
    "tensor cores": "tensor_active_percent",
    "DRAM": "dram_active_percent",
    "multiprocessors": "sm_active_percent",
}
# Fewer windows in a step would not show when something happened.
_FEWEST: Final = 10
MOST: Final = 1_500


def activities(samples: pl.DataFrame, window: Window) -> tuple[TimelineActivity, ...]:
    """Of each device and part that was counted often enough in the step, the rows of `samples`."""
    length_ns = window.end_ns - window.step_ns
    own_ns = pl.col("window_end_ns") - pl.col("window_start_ns")
    rows = samples.filter(
        own_ns * _FEWEST <= length_ns,
        pl.col("window_end_ns") > window.begin_ns,
        pl.col("window_start_ns") < window.end_ns,
    ).sort("window_start_ns", maintain_order=True)
    return tuple(_activities(rows, window.step_ns))


def _activities(rows: pl.DataFrame, zero_ns: int) -> Iterator[TimelineActivity]:
    for device in rows["device"].drop_nulls().unique().sort():
        for part, column in _PARTS.items():
            counted = rows.filter(pl.col("device") == device, pl.col(column).is_not_null())
            if counted.height < _FEWEST:
                continue
            few = _together(counted.select("window_start_ns", "window_end_ns", percent=column))
            yield TimelineActivity(
                device=device,
                part=part,
                starts_ns=tuple(few["window_start_ns"] - zero_ns),
                lengths_ns=tuple(few["window_end_ns"] - few["window_start_ns"]),
                percents=tuple(few["percent"].round(1)),
            )


def _together(counted: pl.DataFrame) -> pl.DataFrame:
    """Neighbours as one window, so that no more than `MOST` are left, with their mean."""
    group = pl.int_range(pl.len()) // -(-counted.height // MOST)
    own_ns = pl.col("window_end_ns") - pl.col("window_start_ns")
    return (
        counted.group_by(group.alias("group"), maintain_order=True)
        .agg(
            pl.col("window_start_ns").min(),
            pl.col("window_end_ns").max(),
            percent=(pl.col("percent") * own_ns).sum() / own_ns.sum(),
        )
        .drop("group")
    )
