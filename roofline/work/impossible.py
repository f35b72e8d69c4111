"""What a device cannot have done: said, because figures made from it are wrong."""

from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.durations import duration

_STREAM: Final = ("process", "device", "context", "stream")
_OF_WORK: Final = ("start_ns", "end_ns", "correlation")
# Some traces have whole microseconds, each end of a piece of work rounded by itself.
_RESOLUTION_NS: Final = 1_000
# A day.
_LONGEST_NS: Final = 86_400 * 10**9


def impossible(capture: Capture) -> tuple[str, ...]:
    """A sentence for each kind of impossible time among the device work of a one-rank capture."""
    work = capture.kernels.select(*_STREAM, "kind", *_OF_WORK).filter(pl.col("kind") != "op")
    if work.is_empty():
        return ()
    found = (_without_times(work), _too_long(work), _overlapping(work))
    return tuple(sentence for sentence in found if sentence)


def launched_later(start_ns: pl.Series, launch_ns: pl.Series) -> str:
    """A sentence where device work begins before its launch; "" where none does."""
    early_ns = (launch_ns - start_ns).drop_nulls().to_numpy()
    early_ns = early_ns[early_ns > _RESOLUTION_NS]
    if not len(early_ns):
        return ""
    return (
        f"{_pieces(len(early_ns))} before the host launched it, by up to "
        f"{early_ns.max() / 1e3:.3g} us: the device's clock is not the host's, or launches belong "
        "to other work"
    )


def _without_times(work: pl.DataFrame) -> str:
    if (work["start_ns"] != work["end_ns"]).any():
        return ""
    return "no piece of device work has a duration: the trace does not tell how long anything took"


def _too_long(work: pl.DataFrame) -> str:
    duration_ns = (work["end_ns"] - work["start_ns"]).to_numpy()
    duration_ns = duration_ns[duration_ns > _LONGEST_NS]
    if not len(duration_ns):
        return ""
    takes = "1 piece of device work takes"
    if len(duration_ns) > 1:
        takes = f"{len(duration_ns)} pieces of device work take"
    return (
        f"{takes} more than a day, up to {duration_ns.max() / _LONGEST_NS:.3g} days: durations are "
        "damaged"
    )


def _overlapping(work: pl.DataFrame) -> str:
    """The nodes of one graph replay share its launch and may run beside each other."""
    ordered = work.drop_nulls("stream").sort("start_ns", maintain_order=True)
    ordered = ordered.with_columns(
        before_ns=pl.col("end_ns").shift(1).over(*_STREAM),
        same_launch=(pl.col("correlation") == pl.col("correlation").shift(1).over(*_STREAM)),
    )
    follows = ordered.drop_nulls("before_ns").filter(~pl.col("same_launch").fill_null(False))
    reached_ns = np.minimum(follows["before_ns"].to_numpy(), follows["end_ns"].to_numpy())
    overlap_ns = reached_ns - follows["start_ns"].to_numpy()
    overlap_ns = overlap_ns[overlap_ns > _RESOLUTION_NS]
    if not len(overlap_ns):
        return ""
    return (
        f"{_pieces(len(overlap_ns))} before the one ahead of it on its stream ends, "
        f"{duration(int(np.sum(overlap_ns)))} in all: a stream runs in order, except for kernels "
        "launched to begin early (programmatic dependent launch); if these are none, times or "
        "numbers of streams are wrong"
    )


def _pieces(number: int) -> str:
    return "1 piece of device work begins" if number == 1 else f"{number} times device work begins"
