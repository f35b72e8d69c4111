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
from gpuprof.roofline.work.names import launch_names


@once_a_capture
def kinds_of_calls(capture: Capture) -> pl.Series:
    """The class of each row of `launches`; null for calls that only launch or ask."""
    names, limits = launch_names(capture), lengths_that_matter()
    texts = [*names.texts, ""]
    length_ns = capture.launches.select(pl.col("end_ns") - pl.col("start_ns")).to_series()
    # The longest of the lengths that each call reaches.
    reached = np.searchsorted(limits, length_ns.fill_null(0).to_numpy(), side="right") - 1
    alike = (names.numbers + 1) * len(limits) + np.maximum(reached, 0)
    found: list[str | None] = [None] * ((len(names.texts) + 1) * len(limits))
    for number in np.flatnonzero(np.bincount(alike, minlength=len(found))).tolist():
        name, limit = divmod(number, len(limits))
        found[number] = kind_of_call(texts[name - 1], limits[limit])
    kinds = pl.Series(found, dtype=pl.String).gather(alike)
    copying = np.flatnonzero(np.array([is_copy(kind) for kind in found], np.bool_)[alike])
    return kinds.scatter(copying, _kinds_of_copies(capture, copying)) if len(copying) else kinds


def _kinds_of_copies(capture: Capture, rows: Integers) -> pl.Series:
    """The same of those `rows` of `launches` that copy, by the copies that they made."""
    copies = (
        capture.kernels.select("process", "correlation", "kind", copy="name")
        .filter(pl.col("kind") == "memcpy")
        .drop_nulls("correlation")
        .unique(("process", "correlation"), keep="first", maintain_order=True)
    )
    calls = capture.launches.select("process", "correlation", "name")[rows].join(
        copies, on=("process", "correlation"), how="left", maintain_order="left"
    )
    return pl.Series(
        [kind_of_copy(name or "", copy) for name, copy in calls.select("name", "copy").iter_rows()],
        dtype=pl.String,
    )


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
