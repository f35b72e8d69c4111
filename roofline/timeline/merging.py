"""Lanes of few pieces: neighbouring short events as one."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from gpuprof.roofline.intervals import Nanoseconds


def fair_shares(counts: Sequence[int], total: int) -> list[int]:
    """How many of `total` pieces each lane gets: what it needs, or as much as any other lane."""
    shares = [0] * len(counts)
    left = total
    order = sorted(range(len(counts)), key=counts.__getitem__)
    for done, lane in enumerate(order):
        shares[lane] = min(counts[lane], left // (len(order) - done))
        left -= shares[lane]
    return shares


def alone_in_pieces(events: pl.DataFrame) -> pl.DataFrame:
    """Each of `events` as a piece, with the columns count and busy_ns."""
    return events.with_columns(count=pl.lit(1, pl.Int64), busy_ns=_LENGTH)


def merged_pieces(events: pl.DataFrame, most: int) -> pl.DataFrame:
    """`events` as at most `most` pieces, with the columns count and busy_ns.

    Columns start_ns, end_ns, rank_wait_ns and label, in order of start and without overlap, and
    others, of which a piece has those of its first event. The label is the one that takes most of
    the piece's time. Only events shorter than some width are merged, and only with neighbours that
    begin in the same multiple of it: the least power of two that leaves few enough.
    """
    alone = alone_in_pieces(events)
    if events.height <= most:
        return alone
    starts = events["start_ns"].to_numpy()
    lengths = events["end_ns"].to_numpy() - starts
    since = starts - starts[0]
    numbers = _few_numbers(since, lengths, most)
    grouped = alone.with_columns(piece=pl.Series(numbers))
    main = (
        grouped.group_by("piece", "label", maintain_order=True)
        .agg(pl.col("busy_ns").sum())
        .sort("piece", "busy_ns", descending=[False, True], maintain_order=True)
        .group_by("piece", maintain_order=True)
        .agg(pl.col("label").first())
    )
    sums = {
        "end_ns": pl.col("end_ns").max(),
        "count": pl.len(),
        "busy_ns": pl.col("busy_ns").sum(),
        "rank_wait_ns": pl.col("rank_wait_ns").sum(),
    }
    first = [name for name in alone.columns if name not in (*sums, "label")]
    pieces = grouped.group_by("piece", maintain_order=True).agg(
        *(pl.col(name).first() for name in first), **sums
    )
    return pieces.with_columns(main["label"], pl.col("count").cast(pl.Int64)).select(alone.columns)


_LENGTH = pl.col("end_ns") - pl.col("start_ns")


def _few_numbers(since: Nanoseconds, lengths: Nanoseconds, most: int) -> Nanoseconds:
    """The numbers of at most `most` pieces, by the least power of two as width that does it."""
    # From this power on all are one piece.
    too_small, enough = -1, int(since[-1] + lengths.max() + 1).bit_length()
    found = _numbers(since, lengths, 1 << enough)
    while enough - too_small > 1:
        power = (enough + too_small) // 2
        numbers = _numbers(since, lengths, 1 << power)
        if numbers[-1] < most:
            enough, found = power, numbers
        else:
            too_small = power
    return found


def _numbers(since: Nanoseconds, lengths: Nanoseconds, width: int) -> Nanoseconds:
    """The number of the piece that each event belongs to."""
    short, bins = lengths < width, since // width
    begins = ~short[1:] | ~short[:-1] | (bins[1:] != bins[:-1])
    numbers: Nanoseconds = np.concatenate([[0], np.cumsum(begins)])
    return numbers
