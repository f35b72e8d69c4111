"""The kernels of the profiled steps as each stream runs them, one after the other."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from gpuprof.roofline.points.classify import WorkKey
from gpuprof.roofline.work.work import Work


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
            *("kind", "device", "stream", "step", "phase"),
            pl.when(pl.col("replay").is_null()).then("signature"),
            *("place", "owner_id", "duration_ns", "start_ns"),
        )
        .filter(pl.col("kind") == "kernel")
        .sort("device", "stream", "start_ns")
        .drop("kind", "start_ns")
    )
    for *line, signature, place, owner, duration_ns in ordered.iter_rows():
        yield StreamKernel(tuple(line), signature, place, owner, duration_ns)
