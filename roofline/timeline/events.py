"""What a lane holds before its events are merged: a frame with these columns, in order of start."""

from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.place_text import place_text
from gpuprof.roofline.intervals import Nanoseconds, are_in_order
from gpuprof.roofline.timeline.rows import free_rows

# As `gpuprof.roofline.timeline_figures.TimelineLabel` has them.
LABEL: Final = pl.Schema(
    {
        "name": pl.String,
        "kind": pl.String,
        "point": pl.Int64,
        "waits": pl.String,
        "operator": pl.String,
        "module": pl.String,
        "place": pl.String,
        "detail": pl.String,
    }
)
# The last ones are of device work: how long a collective waits for other ranks, when the work was
# launched, and by which thread.
_TIMES: Final = (
    *("start_ns", "end_ns", "rank_wait_ns"),
    *("launched_ns", "launching_process", "launching_thread"),
)
_EVENT: Final = pl.Schema({**dict.fromkeys(_TIMES, pl.Int64()), **LABEL})


def as_events(frame: pl.DataFrame, *others: str, **columns: pl.Expr) -> pl.DataFrame:
    """`frame` with the columns of events, in order; what it does not have is unknown.

    With its columns `others` after them.
    """
    found = frame.with_columns(**columns) if columns else frame
    return found.select(*(_column(name, dtype, found) for name, dtype in _EVENT.items()), *others)


def _column(name: str, dtype: pl.DataType, frame: pl.DataFrame) -> pl.Expr:
    known = pl.col(name) if name in frame.columns else pl.lit(None)
    column = known.cast(dtype)
    return (column.fill_null("") if dtype == pl.String else column).alias(name)


def in_rows(events: pl.DataFrame, most: int | None = None) -> dict[int, pl.DataFrame]:
    """`events` by the rows that they stand in, `most` rows: those of one do not overlap."""
    ordered = events
    if not are_in_order(*_edges(events)):
        ordered = events.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    rows = free_rows(*_edges(ordered))
    numbers = np.unique(rows)
    if len(numbers) == 1:
        return {int(numbers[0]): ordered}
    return {int(row): ordered.filter(pl.Series(rows == row)) for row in numbers[:most]}


def _edges(events: pl.DataFrame) -> tuple[Nanoseconds, Nanoseconds]:
    return events["start_ns"].to_numpy(), events["end_ns"].to_numpy()


def with_places(ops: pl.DataFrame) -> pl.DataFrame:
    """`ops` with the column place: "train.py:42", null where it is unknown."""
    known = ops.select("file", "line").unique().drop_nulls("file")
    texts = [place_text(file, line) for file, line in known.iter_rows()]
    return ops.join(
        known.with_columns(place=pl.Series(texts, dtype=pl.String)),
        on=("file", "line"),
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
