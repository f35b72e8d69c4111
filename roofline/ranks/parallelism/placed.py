"""Collectives of all ranks with the pass that they are in, as the work before them tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import polars as pl

from gpuprof.roofline.ranks.collective_kinds import kinds_of
from gpuprof.roofline.ranks.summary import RankSummary

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
# What tells one process group from another.
GROUP: Final = ("group", "group_ranks", "group_size")
# Smaller messages are flags, losses and norms of gradients.
_SMALLEST_BYTES: Final = 1024
_STEP: Final = ("rank", "step")


@dataclass(frozen=True)
class JobFrames:
    """The frames of several ranks as one each, with a column rank."""

    summaries: Sequence[RankSummary]

    @cached_property
    def work(self) -> pl.DataFrame:
        """The rows of WORK."""
        return self._together("work")

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The rows of STEPS."""
        return self._together("steps")

    @cached_property
    def collectives(self) -> pl.DataFrame:
        """The rows of COLLECTIVES that carry data, with these columns beside theirs.

        segment: its number in its step; nth: that among those of its group. kind: as reports spell
        it. forward_done, backward_done: device work of the pass that was over when it began, in ns;
        forward_ns, backward_ns: all of it. Those that run at once share what is exposed of them.
        """
        rows = self._shared(self._together("collectives"))
        rows = rows.with_columns(
            segment=pl.int_range(pl.len()).over(_STEP).cast(pl.Int32),
            kind=kinds_of(rows["collective"]),
        )
        for name in (FORWARD, BACKWARD):
            own = self.work.filter(pl.col("phase") == name)
            total = own.group_by(_STEP).agg(pl.col("device_ns").sum().alias(f"{name}_ns"))
            rows = rows.join(
                _done(own, rows, f"{name}_done"),
                on=(*_STEP, "segment"),
                how="left",
                maintain_order="left",
            ).join(total, on=_STEP, how="left", maintain_order="left")
        sums = [f"{name}_{what}" for name in (FORWARD, BACKWARD) for what in ("done", "ns")]
        small = pl.col("message_bytes").fill_null(_SMALLEST_BYTES) < _SMALLEST_BYTES
        return (
            rows.with_columns(pl.col(sums).fill_null(0))
            .filter(~small, pl.col("kind").is_not_null(), pl.col("kind") != "barrier")
            .with_columns(nth=pl.int_range(pl.len()).over(*_STEP, *GROUP))
        )

    def _shared(self, rows: pl.DataFrame) -> pl.DataFrame:
        """`rows` of which exposed_ns adds up to no more than the step's, where that is known."""
        steps = self.steps.filter(pl.col("phase") == "profiled").select(
            "rank", pl.col("exposed_communication_ns").alias("union_ns"), step="index"
        )
        summed = pl.col("exposed_ns").sum().over(_STEP)
        share = pl.min_horizontal(1.0, pl.col("union_ns") / summed).fill_nan(1.0)
        return (
            rows.join(steps, on=_STEP, how="left", maintain_order="left")
            .with_columns((pl.col("exposed_ns") * share.fill_null(1.0)).round().cast(pl.Int64))
            .drop("union_ns")
        )

    def _together(self, name: str) -> pl.DataFrame:
        return pl.concat(
            [
                each.frame(name).with_columns(rank=pl.lit(each.rank, pl.Int32))
                for each in self.summaries
            ]
        )


def in_forward() -> pl.Expr:
    """Before the backward pass has done anything, and before the forward pass is over."""
    return (pl.col("backward_done") == 0) & (pl.col("forward_done") < pl.col("forward_ns"))


def steps_of(rows: pl.DataFrame) -> int:
    """How many steps `rows` are of."""
    return max(1, rows["step"].n_unique())


def mean_ns(rows: pl.DataFrame, column: str, steps: int) -> int:
    """The sum of `column` in one of `steps`."""
    return round(int(rows[column].sum()) / steps)


def mean_bytes(messages: pl.Series, steps: int) -> int | None:
    """The bytes of one of `steps`; None where any message is unknown."""
    return None if messages.null_count() else round(int(messages.sum()) / steps)


def messages_of(rows: pl.DataFrame) -> pl.DataFrame:
    """By rank and step what was sent, in order, as one text."""
    one = pl.concat_str("kind", pl.col("message_bytes").cast(pl.String).fill_null(""))
    return rows.group_by(_STEP, maintain_order=True).agg(messages=one.str.join(" "))


def is_regular(rows: pl.DataFrame) -> bool:
    """Whether every step of every rank has the same messages in the same order."""
    return messages_of(rows)["messages"].n_unique() == 1


def _done(work: pl.DataFrame, rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """The part of `work` that was over when each collective began, by rank, step and segment.

    A row of work has ended when as many collectives had begun as its segment says.
    """
    keys = (*_STEP, "segment")
    marks = rows.select(keys).with_columns(device_ns=pl.lit(None, pl.Int64))
    # At equal segments the work is over first.
    both = pl.concat([work.select(*keys, "device_ns"), marks]).sort(keys, maintain_order=True)
    sums = both.with_columns(pl.col("device_ns").fill_null(0).cum_sum().over(_STEP).alias(column))
    return sums.filter(both["device_ns"].is_null()).select(*keys, column)
