"""What the device of one rank did in its profiled steps, and why it did nothing, in few rows."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import ends_of
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.idle.culprits import named_pieces
from gpuprof.roofline.idle.pieces import idle_pieces
from gpuprof.roofline.ranks.collective_rows import segments
from gpuprof.roofline.ranks.summary import IDLE, OTHERS, WORK
from gpuprof.roofline.row_groups import row_groups
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.attribution import of_operators
from gpuprof.roofline.work.work import Work

_WHAT: Final = ("name", "input_dims", "input_types", "phase", "module", "file", "line")
# What of the kernels of a `Work` rows are made of.
_OF_WORK: Final = (
    *("step", "kind", "name", "phase", "duration_ns", "end_ns", "signature", "place"),
    *("owner_id", "owner_op_id", "kernel_row"),
)
_IDLE_WHAT: Final = ("kind", "culprit", "place", "keeps")


def work_rows(capture: Capture, work: Work, collectives: pl.DataFrame, limit: int) -> pl.DataFrame:
    """The rows of `WORK`: all of `work` but collectives, `limit` of them at most."""
    own = work.kernels.select(_OF_WORK).filter(pl.col("kind") != "collective")
    own = own.with_columns(
        pl.col("step").fill_null(0),
        # What owns itself has no call of an operator; each piece is one.
        call=pl.coalesce("owner_id", -1 - pl.col("kernel_row")),
    )
    ends_ns = _ends_of_calls(own)
    signatures = pl.DataFrame(
        [
            (number, each.name, each.call and each.call.name)
            for number, each in enumerate(work.signatures)
        ],
        schema={"signature": pl.UInt32, "signature_name": pl.String, "op": pl.String},
        orient="row",
    )
    places = pl.DataFrame(
        [
            (
                number,
                each.module or None,
                None if each.source is None else each.source.file,
                None if each.source is None else each.source.line,
            )
            for number, each in enumerate(work.places.table)
        ],
        schema={"place": pl.Int64, "module": pl.String, "file": pl.String, "line": pl.Int32},
        orient="row",
    )
    ops = of_operators(capture.ops, own["owner_op_id"], "name", "input_dims", "input_types")
    found = (
        own.select(
            *("step", "name", "phase", "duration_ns", "call"),
            pl.col("signature").cast(pl.UInt32),
            pl.col("place").cast(pl.Int64),
        )
        .with_columns(ops.rename({"name": "op_name"}))
        .join(signatures, on="signature", how="left", maintain_order="left")
        .join(places, on="place", how="left", maintain_order="left")
        .with_columns(
            name=pl.coalesce("op_name", "signature_name", "name"),
            segment=segments(collectives, own["step"], ends_ns),
        )
        # Numbers, which are quicker to group by than texts.
        .with_columns(pl.col(pl.String).cast(pl.Categorical))
    )
    rows = (
        found.group_by("step", "segment", *_WHAT, maintain_order=True)
        .agg(
            calls=pl.col("call").n_unique().cast(pl.Int64),
            device_ns=pl.col("duration_ns").sum(),
        )
        .with_columns(pl.col(pl.Categorical).cast(pl.String))
    )
    return bounded(rows, _WHAT, "device_ns", limit).select(
        pl.col(name).cast(dtype) for name, dtype in WORK.items()
    )


def _ends_of_calls(kernels: pl.DataFrame) -> pl.Series:
    """When the call of each row ends in its step: it is whole, whatever begins between its rows."""
    step, call = (kernels[name].cast(pl.Int64).to_numpy() for name in ("step", "call"))
    ends_ns = np.empty(kernels.height, np.int64)
    if kernels.height:
        order, begins = row_groups(step, call)
        last_ns = np.maximum.reduceat(ends_of(kernels)[order], begins)
        ends_ns[order] = np.repeat(last_ns, np.diff(begins, append=kernels.height))
    return pl.Series(ends_ns)


def idle_rows(
    capture: Capture,
    work: Work,
    steps: Stretch,
    collectives: pl.DataFrame,
    limit: int,
    *,
    on_cpu: bool,
) -> pl.DataFrame:
    """The rows of `IDLE`, `limit` of them at most."""
    idle = idle_pieces(capture, work, steps, on_cpu=on_cpu)
    named = named_pieces(idle, capture).with_columns(
        gap_end_ns=pl.Series(idle.gaps.end_ns).gather(idle.pieces["gap"]),
    )
    indices = np.array(steps.indices or (0,))
    step = pl.Series(indices[named["step"].to_numpy()], dtype=pl.Int32)
    rows = (
        named.with_columns(
            step=step,
            segment=segments(collectives, step, named["gap_end_ns"]),
            culprit=_culprit(),
        )
        .group_by("step", "segment", *_IDLE_WHAT, maintain_order=True)
        .agg(pl.col("nanoseconds").sum())
        .with_columns(pl.col(pl.Enum).cast(pl.String))
    )
    return bounded(rows, _IDLE_WHAT, "nanoseconds", limit).select(
        pl.col(name).cast(dtype) for name, dtype in IDLE.items()
    )


def _culprit() -> pl.Expr:
    """What the host did, with the call and the operator in which it did that."""
    inside = pl.when(pl.col("call") != "").then(pl.format(" ({})", "call")).otherwise(pl.lit(""))
    return pl.concat_str("what", inside)


def bounded(rows: pl.DataFrame, what: Sequence[str], amount: str, limit: int) -> pl.DataFrame:
    """`rows`, those of the smallest kinds of `what` added up where there are more than `limit`."""
    if rows.height <= limit:
        return rows
    kinds = (
        rows.group_by(what, maintain_order=True)
        .agg(pl.len(), pl.col(amount).sum())
        .sort(amount, descending=True, maintain_order=True)
    )
    places = rows.select("step", "segment").n_unique()
    kept = kinds.filter(pl.col("len").cum_sum() <= max(0, limit - places))
    named = rows.join(kept, on=what, how="semi", nulls_equal=True, maintain_order="left")
    others = rows.join(kept, on=what, how="anti", nulls_equal=True, maintain_order="left")
    numbers = [pl.col(name).sum() for name in ("calls", amount) if name in rows.columns]
    is_idle = amount == "nanoseconds"
    grouped = ["step", "segment", *(["kind", "keeps"] if is_idle else [])]
    # What idle time is of has a place in every row, though an empty one.
    named_others = {"culprit": OTHERS, "place": ""} if is_idle else {what[0]: OTHERS}
    summed = (
        others.group_by(grouped, maintain_order=True)
        .agg(numbers)
        .with_columns(pl.lit(text).alias(name) for name, text in named_others.items())
    )
    return pl.concat([named, summed], how="diagonal_relaxed")
