"""Collectives that follow each other with nothing between them, which one message could replace.

A call needs nothing of the one before it where no work was launched between the two but elementwise
work on a message (a division by the number of ranks), or where work that was did not wait for the
first one's end. Of other programs, tensor parallelism among them, each call's message may come from
what the one before it brought, by a product.

Where many follow each other directly, each waits for nothing but the other ranks' launches of it:
what that takes is the price of one more call, whichever rank comes last. Of few it may be a pause.
"""

from typing import Final

import numpy as np
import polars as pl

from gpuprof.roofline.classes import COMMUNICATION

_KIND: Final = ("what", "group")
_READ: Final = ("device", "step", "transfer", "kernel_row", "end_ns")
# So many calls that follow each other directly are many: `gpuprof.roofline.advice.links`.
MANY: Final = 8
_BETWEEN: Final = {"kernel_row": pl.Int64, "direct": pl.Boolean, "mergeable": pl.Boolean}
_COMMUNICATES: Final = pl.col("transfer") == COMMUNICATION


def with_call_runs(kernels: pl.DataFrame) -> pl.DataFrame:
    """`kernels`, of `gpuprof.roofline.work.transfers`, with two columns more.

    mergeable: the call needs nothing of the one before it of its kind and group in its step;
    direct: it follows that with no launch between, and is one of `MANY` that do. Expects launch_ns
    and elementwise, which may be null.
    """
    found = kernels.select("kernel_row").join(
        _between(kernels), on="kernel_row", how="left", maintain_order="left"
    )
    return kernels.with_columns(
        found[name].fill_null(False).alias(name) for name in ("mergeable", "direct")
    )


def call_waits_ns(kernels: pl.DataFrame, late_ns: int) -> pl.Series:
    """What of exposed_wait_ns the number of calls costs, null where that is.

    In a step stragglers make this rank wait for `late_ns`: as far as that is more than calls wait
    that follow no other, it is in the others and no price of theirs. `kernels` have the columns of
    `with_call_runs`.
    """
    steps = max(1, kernels["step"].n_unique())
    waits_ns = kernels["exposed_wait_ns"].fill_null(0)
    behind_ns = int(waits_ns.filter(kernels["direct"]).sum())
    beyond_ns = max(0, late_ns * steps - (int(waits_ns.sum()) - behind_ns))
    kept = max(0.0, 1 - beyond_ns / behind_ns) if behind_ns else 0.0
    price = (pl.col("exposed_wait_ns") * kept).round().cast(pl.Int64)
    return kernels.select(
        pl.when(pl.col("exposed_wait_ns").is_null())
        .then(None)
        .when("direct")
        .then(price)
        .otherwise(pl.lit(0, pl.Int64))
        .alias("call_wait_ns")
    )["call_wait_ns"]


def _between(kernels: pl.DataFrame) -> pl.DataFrame:
    """Columns kernel_row, mergeable and direct, of each collective that has one before it."""
    all_known = bool(kernels["launch_ns"].is_not_null().all())
    order = ["launch_ns", "start_ns"] if all_known else ["start_ns"]
    counts = ~(pl.col("elementwise").fill_null(False) & pl.col("transfer").is_null())
    ordered = (
        kernels.select(*_READ, *_KIND, *order, "elementwise")
        .filter(counts)
        .sort(order, maintain_order=True)
        .select(*_READ, *_KIND, "start_ns")
    )
    found = [pl.DataFrame(schema=_BETWEEN)]
    for _, own in ordered.group_by("device", maintain_order=True):
        kinds = own.filter(_COMMUNICATES).select(_KIND).unique(maintain_order=True)
        found += [_of_one_kind(own, what, group) for what, group in kinds.iter_rows()]
    return pl.concat(found)


def _of_one_kind(ordered: pl.DataFrame, what: str, group: str | None) -> pl.DataFrame:
    """The same of the collectives of one kind and group among the work of one device."""
    alike = ordered.select(
        _COMMUNICATES.fill_null(False)
        & pl.col("what").eq_missing(what)
        & pl.col("group").eq_missing(pl.lit(group, pl.String))
    ).to_series()
    calls = ordered.filter(alike)
    # Work that lies behind call n and before the next has n calls before it, counted from one.
    numbered = ordered.with_columns(before=alike.cast(pl.Int64).cum_sum())
    others = numbered.filter(~alike)
    count = calls.height
    launched = np.zeros(count + 1, np.bool_)
    launched[others["before"].to_numpy()] = True
    computing = others.filter(pl.col("transfer").is_null())
    first_ns = np.full(count + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_ns, computing["before"].to_numpy(), computing["start_ns"].to_numpy())
    direct = ~launched[1:count]
    waits_for_none = first_ns[1:count] < calls["end_ns"].to_numpy()[: count - 1]
    same_step = pl.col("step").eq_missing(pl.col("step").shift(1))
    marked = calls.select("kernel_row", same=same_step).with_columns(
        # The first call follows none.
        direct=pl.Series([False, *direct]) & pl.col("same"),
        mergeable=pl.Series([False, *(direct | waits_for_none)]),
    )
    many = pl.len().over((~pl.col("direct")).cum_sum()) >= MANY
    return (
        marked.with_columns(pl.col("direct") & many)
        .filter("same")
        .select(pl.col(name).cast(dtype) for name, dtype in _BETWEEN.items())
    )
