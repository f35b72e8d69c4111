"""The kernels of the profiled steps as each stream runs them, one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class StreamOrder:
    """The kernels of a `Work` in the order of their streams, without copies and collectives.

    Columns of `kernels`: line (a number in `lines`), and signature, place, owner and duration_ns as
    a `StreamKernel` has them.
    """

    kernels: pl.DataFrame
    # One object for each line: kernels by the hundred thousand share a few.
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


def in_stream_order(work: Work) -> Iterator[StreamKernel]:
    """The kernels of `work`, without copies and collectives, one by one."""
    order = stream_order(work)
    columns = (
        order.kernels[name].to_list() for name in ("signature", "place", "owner", "duration_ns")
    )
    lines = (order.lines[number] for number in order.kernels["line"].to_list())
    return map(StreamKernel._make, zip(lines, *columns, strict=True))
