"""What runtime calls mean for a device that waits, and for how long they waited for it."""

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.collectors.capture import Capture, once_a_capture
from gpuprof.roofline.classes import SYNCHRONISATION
from gpuprof.roofline.idle.host_work import (
    is_copy,
    kind_of_call,
    kind_of_copy,
    lengths_that_matter,
)
from gpuprof.roofline.intervals import covered_ns


@once_a_capture
def kinds_of_calls(capture: Capture) -> pl.Series:
    """The class of each row of `launches`; null for calls that only launch or ask."""
    copies = (
        capture.kernels.filter(pl.col("kind") == "memcpy")
        .select("process", "correlation", copy="name")
        .drop_nulls("correlation")
        .unique(("process", "correlation"), keep="first", maintain_order=True)
    )
    length = pl.col("end_ns") - pl.col("start_ns")
    calls = capture.launches.select(
        "process",
        "correlation",
        "name",
        # The longest of the lengths that the call reaches.
        reached_ns=pl.max_horizontal(
            # Not when and then: polars 1.44 takes those of numbers alone for a single value.
            (length >= limit).cast(pl.Int64) * limit
            for limit in lengths_that_matter()
        ),
    ).join(copies, on=("process", "correlation"), how="left", maintain_order="left")
    kinds = calls.select("name", "reached_ns", "copy").unique()
    known = kinds.with_columns(
        kind=pl.Series([_kind(*row) for row in kinds.iter_rows()], dtype=pl.String)
    )
    return calls.join(
        known,
        on=("name", "reached_ns", "copy"),
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["kind"]


def _kind(name: str | None, reached_ns: int, copy: str | None) -> str | None:
    kind = kind_of_call(name or "", reached_ns)
    return kind_of_copy(name or "", copy) if is_copy(kind) else kind


def synchronisations(
    launches: pl.DataFrame, kinds: pl.Series, busy: tuple[Integers, Integers], from_ns: int
) -> pl.DataFrame:
    """The calls that waited for the device, in order of their ends, those that end after `from_ns`.

    Columns launch_row, end_ns and waited_ns: the time of the call in which the device was `busy`.
    """
    calls = (
        launches.select("start_ns", "end_ns")
        .with_row_index("launch_row")
        .filter((kinds == SYNCHRONISATION) & (pl.col("end_ns") > from_ns))
        .sort("end_ns", maintain_order=True)
    )
    before, after = (covered_ns(busy, calls[edge].to_numpy()) for edge in ("start_ns", "end_ns"))
    return calls.select(
        pl.col("launch_row").cast(pl.Int64),
        "end_ns",
        waited_ns=pl.Series(after - before, dtype=pl.Int64),
    )


def drained_ns(
    idle_ns: Integers, at_ns: Integers, calls_end_ns: Integers, waited_ns: Integers
) -> tuple[Integers, Integers]:
    """What of idle times the last synchronisation before them explains, and its number (-1: none).

    Without it the host would have been earlier by as long as it waited: so much of the times in
    which it then launches too slowly, `idle_ns` at the host's times `at_ns` in order, would be
    hidden by work that is still queued.
    """
    call = np.searchsorted(calls_end_ns, at_ns, side="right") - 1
    reached = np.cumsum(idle_ns)
    # What had been reached when the times after each call began.
    first = np.searchsorted(call, call, side="left")
    before = np.concatenate([[0], reached])[first]
    credit = np.append(waited_ns, 0)[call] * (call >= 0)
    used = np.minimum(reached - before, credit)
    earlier = np.minimum(reached - idle_ns - before, credit)
    explained: Integers = used - earlier
    return explained, call
