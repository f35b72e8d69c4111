"""Kernels without an operator whose work hardware counters tell: each is its own owner."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from gpuprof.roofline.cost_models.cost import Cost


@dataclass(frozen=True)
class CountedWork:
    """Launches of one kind: their rows in the capture's kernels, and what one of them costs.

    `reason` says why some of the cost is unknown, "" where all of it is known.
    """

    kernel: str
    rows: tuple[int, ...]
    cost: Cost
    reason: str


def owning_themselves(
    kernels: pl.DataFrame, counted: Sequence[CountedWork], first_signature: int
) -> tuple[pl.DataFrame, tuple[CountedWork, ...]]:
    """`kernels`, those counted ones that have no operator the owners of themselves.

    Their signatures are numbers from `first_signature` on, in the order of the kinds given back.
    """
    unowned = set(kernels.filter(pl.col("owner_id").is_null())["kernel_row"])
    kinds = tuple(kind for kind in counted if not unowned.isdisjoint(kind.rows))
    signature_of = {
        row: first_signature + number
        for number, kind in enumerate(kinds)
        for row in kind.rows
        if row in unowned
    }
    if not signature_of:
        return kernels, ()
    own = pl.col("kernel_row").is_in(list(signature_of))
    numbers = pl.col("kernel_row").replace_strict(
        signature_of, default=None, return_dtype=kernels.schema["signature"]
    )
    return kernels.with_columns(
        owner_id=pl.when(own).then(-1 - pl.col("kernel_row")).otherwise("owner_id"),
        signature=pl.when(own).then(numbers).otherwise("signature"),
        compute_kernels=pl.when(own)
        .then(pl.lit(1, dtype=kernels.schema["compute_kernels"]))
        .otherwise("compute_kernels"),
    ), kinds
