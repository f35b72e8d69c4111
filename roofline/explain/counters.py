"""The hardware counters of some kernels that have a name for people in metrics.toml."""

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.launch_keys import KEY, launch_keys
from gpuprof.roofline.explanation_figures import CounterValue
from gpuprof.roofline.measured.metric_table import metric_table


def counters_of(capture: Capture, kernel_rows: pl.Series) -> tuple[tuple[CounterValue, ...], int]:
    """The counters of the table, and how many others there are.

    `kernel_rows` are rows of the table kernels. Each is the mean over the launches counted.
    """
    if capture.counters.is_empty() or kernel_rows.is_empty():
        return (), 0
    keys = launch_keys(capture.kernels, capture.launches).filter(
        pl.col("row").is_in(kernel_rows.implode())
    )
    found = (
        capture.counters.join(keys, on=KEY, how="semi")
        .group_by("metric")
        .agg(pl.col("value").mean(), pl.col("unit").first(), pl.len())
    )
    rows = {metric: (value, unit, number) for metric, value, unit, number in found.iter_rows()}
    shown = tuple(
        CounterValue(row.name, row.metric, value, unit or "", number)
        for row in metric_table().metric
        if row.shown and row.metric in rows
        for value, unit, number in (rows[row.metric],)
        if value is not None
    )
    return shown, len(rows) - len(shown)
