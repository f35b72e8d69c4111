"""The kernels of the profiled steps as each stream runs them, one after the other."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from gpuprof.roofline.work.work import Work

_LINE: Final = ("device", "stream", "step", "phase")


@dataclass(frozen=True)
class StreamOrder:
    """The kernels of a `Work` in the order of their streams, without copies and collectives.

    Columns of `kernels`: line (a number in `lines`), signature (the index of its operator's; null
    where no operator is known, and for what a graph replays, which its author put together), place
    (the number of its place in the program), owner and duration_ns.
    """

    kernels: pl.DataFrame
    # Device, stream, step and phase: what differs in one of them does not follow. One object for
    # each: kernels by the hundred thousand share a few.
    lines: tuple[tuple[object, ...], ...]

    def phase(self, line: int) -> str:
        """The phase of the kernels of a line."""
        return str(self.lines[line][-1])


def stream_order(work: Work) -> StreamOrder:
    """The kernels of `work`, without copies and collectives."""
    ordered = (
        work.kernels.select(
            *("kind", *_LINE),
            pl.when(pl.col("replay").is_null()).then("signature"),
            *("place", "duration_ns", "start_ns"),
            owner="owner_id",
        )
        .filter(pl.col("kind") == "kernel")
        # Numbers, which are quicker to compare than texts.
        .with_columns(pl.col("phase").cast(pl.Categorical))
        .drop("kind")
        .sort("device", "stream", "start_ns")
    )
    lines = ordered.select(_LINE).unique(maintain_order=True).with_row_index("line")
    numbers = ordered.select(_LINE).join(
        lines, on=_LINE, how="left", nulls_equal=True, maintain_order="left"
    )["line"]
    return StreamOrder(
        ordered.select("signature", "place", "owner", "duration_ns", line=numbers.cast(pl.Int64)),
        tuple(lines.select(_LINE).iter_rows()),
    )
