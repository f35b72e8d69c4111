"""The kernels of the profiled steps as each stream runs them, one after the other."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import polars as pl

from gpuprof.roofline.points.classify import WorkKey
from gpuprof.roofline.work.work import Work

_LINE: Final = ("device", "stream", "step", "phase")


class StreamKernel(NamedTuple):
    """One kernel of an operator that the program called, or one that breaks the sequence."""

    # Device, stream, step and phase: what differs in one of them does not follow.
    line: tuple[object, ...]
    # The index of its operator signature; None where no operator is known, and for what a graph
    # replays, which its author put together.
    signature: int | None
    # The number of its place in the program.
    place: int
    owner: int | None
    duration_ns: int

    @property
    def key(self) -> WorkKey:
        """Of the operator's work."""
        return self.signature, str(self.line[-1]), ""


def in_stream_order(work: Work) -> Iterator[StreamKernel]:
    """The kernels of `work`, without copies and collectives."""
    ordered = (
        work.kernels.select(
            *("kind", *_LINE),
            pl.when(pl.col("replay").is_null()).then("signature"),
            *("place", "owner_id", "duration_ns", "start_ns"),
        )
        .filter(pl.col("kind") == "kernel")
        .sort("device", "stream", "start_ns")
    )
    # One object for each line: kernels by the hundred thousand share a few.
    lines = ordered.select(_LINE).unique(maintain_order=True).with_row_index("number")
    numbers = ordered.select(_LINE).join(
        lines, on=_LINE, how="left", nulls_equal=True, maintain_order="left"
    )["number"]
    objects = list(lines.select(_LINE).iter_rows())
    columns = (ordered[name].to_list() for name in ("signature", "place", "owner_id"))
    rows = zip(
        (objects[number] for number in numbers.to_list()),
        *columns,
        ordered["duration_ns"].to_list(),
        strict=True,
    )
    return map(StreamKernel._make, rows)
