"""The rows of a Chrome trace: which process and thread number each piece of work stands on.

Slices of one row must nest or keep apart: viewers drop others. Kernels of one stream may overlap
(graph replays, dependent launches), so those that do get rows of their own beside the stream's.
"""

import polars as pl

from gpuprof.roofline.timeline.rows import free_rows

_STREAM = ("device", "context", "stream")


def device_offset(processes: pl.Series, devices: pl.Series) -> int:
    """What to add to a device's index for its process number: 0 unless that is a real process."""
    if processes.is_in(devices.implode()).any():
        return int(processes.max() or 0) + 1  # type: ignore[arg-type]
    return 0


def kernel_rows(kernels: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """The thread number of each kernel, and what the numbers mean: device, row and label.

    A stream's row has the stream's number, unless another context of the device has a stream of
    that number too. `kernels` are sorted by start.
    """
    keyed = kernels.select(
        pl.col("device").fill_null(0),
        pl.col("context").fill_null(0),
        pl.col("stream").fill_null(0),
        "start_ns",
        "end_ns",
    ).with_row_index("position")
    lanes = pl.concat(
        [
            pl.DataFrame(schema={"position": pl.UInt32, "lane": pl.Int64}),
            *(
                stream.select("position").with_columns(
                    lane=pl.Series(
                        free_rows(stream["start_ns"].to_numpy(), stream["end_ns"].to_numpy())
                    )
                )
                for stream in keyed.partition_by(_STREAM, maintain_order=True)
            ),
        ]
    )
    keyed = keyed.join(lanes, on="position", maintain_order="left")
    rows = keyed.select(*_STREAM, "lane").unique().sort("device", "lane", "context", "stream")
    first = (pl.col("lane") == 0) & pl.struct("device", "stream").is_first_distinct()
    beyond = pl.col("stream").max().over("device") + (~first).cum_sum().over("device")
    rows = rows.with_columns(
        row=pl.when(first).then("stream").otherwise(beyond),
        label=pl.format("stream {}", "stream")
        + pl.when(first | (pl.col("lane") > 0))
        .then(pl.lit(""))
        .otherwise(pl.format(", context {}", "context"))
        + pl.when(pl.col("lane") > 0)
        .then(pl.format(", overlapping {}", "lane"))
        .otherwise(pl.lit("")),
    )
    numbers = keyed.join(rows, on=[*_STREAM, "lane"], maintain_order="left")["row"]
    return numbers, rows.select("device", "row", "label")


def crossing(ranges: pl.DataFrame) -> pl.Series:
    """Which ranges partly overlap an earlier one of their thread, so cannot stand in its row.

    A range that never ended crosses none.
    """
    result = [False] * ranges.height
    open_ends: dict[object, list[int]] = {}
    order = ranges.with_row_index("position").sort("start_ns", "end_ns", descending=[False, True])
    columns = ("position", "process", "thread", "start_ns", "end_ns")
    for position, process, thread, start, end in order.select(columns).iter_rows():
        if end is None:
            continue
        stack = open_ends.setdefault((process, thread), [])
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and stack[-1] < end:
            result[position] = True
        else:
            stack.append(end)
    return pl.Series("crossing", result, dtype=pl.Boolean)
