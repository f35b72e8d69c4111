"""Allocator events of one device -> how much was allocated when, and what lived from when to when.

Positions count the states between events: 0 is before the first one, p after p events.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import Integers

_UNKNOWN_RESERVED: Final = -1


@dataclass(frozen=True)
class Lifetimes:
    """The memory of one device while events were recorded."""

    # One a position.
    times_ns: Integers
    allocated: Integers
    # -1 where it is not known.
    reserved: Integers
    # One row an allocation seen: address, bytes, op_id, stack, born and died (positions), born_ns
    # and died_ns (null while it lives).
    blocks: pl.DataFrame
    # What was allocated before the first event and given back later: address, bytes, died.
    freed_earlier: pl.DataFrame
    # What was there all the time, rows of `memory_blocks`; none where nobody looked.
    stayed: pl.DataFrame
    # Whether `allocated` counts from the first event on, for nothing tells what was there.
    since_first_event: bool

    def reserved_at(self, position: int) -> int | None:
        """What the allocator held after so many events."""
        value = int(self.reserved[position])
        return None if value == _UNKNOWN_RESERVED else value

    def position_at(self, time_ns: int) -> int:
        """The position that time has: all events up to it have happened."""
        return int(np.searchsorted(self.times_ns[1:], time_ns, side="right"))


def lifetimes(events: pl.DataFrame, at_end: pl.DataFrame) -> Lifetimes:
    """The lifetimes in `events`, rows of `allocations` of one device in the order of time.

    On a device each event says how much is allocated after it. In main memory it does not, and
    torch leaves out the end of what it did not see begin: there what was allocated before is what
    `at_end`, rows of `memory_blocks` when the recording ended, has beyond what began in it.
    """
    rows = events.with_columns(position=pl.int_range(1, pl.len() + 1)).sort(
        "address", "position", maintain_order=True
    )
    # Whatever comes next at an address ends what was there, though the event of it was lost.
    ended = pl.col("address") == pl.col("address").shift(-1)
    begun = (pl.col("address") == pl.col("address").shift(1)) & (pl.col("bytes").shift(1) > 0)
    rows = rows.with_columns(
        died=pl.when(ended).then(pl.col("position").shift(-1)),
        died_ns=pl.when(ended).then(pl.col("time_ns").shift(-1)),
        begun=begun.fill_null(value=False),
    )
    blocks = (
        rows.filter(pl.col("bytes") > 0)
        .rename({"position": "born", "time_ns": "born_ns"})
        .select("address", "bytes", "op_id", "stack", "born", "born_ns", "died", "died_ns")
        .sort("born")
    )
    freed_earlier = rows.filter((pl.col("bytes") < 0) & ~pl.col("begun")).select(
        "address", bytes=-pl.col("bytes"), died="position"
    )
    totals, changes = events["total"], events["bytes"].to_numpy()
    on_device = events["device"][0] is not None
    known = on_device and totals.null_count() == 0
    if known:
        allocated = np.concatenate([[int(totals[0]) - changes[0]], totals.to_numpy()])
    else:
        # The end of what was not seen to begin may have the size of what was there long before.
        changes = changes.copy()
        changes[freed_earlier["died"].to_numpy() - 1] = 0
        allocated = np.concatenate([[0], np.cumsum(changes)])
        allocated += int(_beyond(blocks, at_end)["bytes"].sum())
        freed_earlier = freed_earlier.clear()
    times_ns = events["time_ns"].to_numpy()
    reserved = events["reserved"].fill_null(_UNKNOWN_RESERVED).to_numpy()
    return Lifetimes(
        times_ns=np.concatenate([times_ns[:1], times_ns]),
        allocated=allocated.astype(np.int64),
        reserved=np.concatenate([[_UNKNOWN_RESERVED], reserved]).astype(np.int64),
        blocks=blocks,
        freed_earlier=freed_earlier,
        stayed=_beyond(blocks, at_end),
        since_first_event=not known and at_end.is_empty(),
    )


def _beyond(blocks: pl.DataFrame, at_end: pl.DataFrame) -> pl.DataFrame:
    """What was allocated at the end and did not begin as one of `blocks`."""
    begun = blocks.filter(pl.col("died").is_null())["address"]
    # The events of a snapshot have the sizes that were asked for, not those of blocks.
    asked = pl.when(pl.col("moment") == "snapshot").then("requested")
    return at_end.filter(
        (pl.col("state") == "allocated") & ~pl.col("address").is_in(begun.implode())
    ).with_columns(bytes=pl.coalesce(asked, "bytes"))
