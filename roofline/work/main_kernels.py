"""Which of the kernels that one operator call launched does its work, and which only help it.

Split-K products add their parts in a second kernel, attention's backward passes prepare and convert
in kernels of their own, and layouts are converted around a convolution. The operator's FLOPs and
bytes then count at its main kernel; at several where no one of them does most of the work.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import polars as pl

from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.product_names import names_product

# sole: all that its owner's call launched. main: its owner's work counts here. helper: it does none
# of that, like a memset beside a kernel. shared: the owner's kernels share the work, in parts that
# are not known.
Role: TypeAlias = Literal["sole", "main", "helper", "shared"]

# Kinds of device work that compute.
COMPUTING: Final = ("kernel", "op", "collective")
# A second kernel of products that takes more of the main one's time does products of its own, like
# the two gradients of a convolution. In flash attention's backward the conversion of dQ takes 3 %.
_LARGEST_RIVAL: Final = 0.25
_SMALLEST_MAIN: Final = 0.5
_SEPARATOR: Final = "\n"
_SET: Final = ("signature", "phase", "kernel_set")


def with_roles(kernels: pl.DataFrame, costs: Sequence[Cost | None]) -> pl.DataFrame:
    """`kernels` with role and main_kernel, both null for what has no owner.

    Reads the columns owner_id, signature (an index into `costs`), phase, kind, name and
    duration_ns. Calls of one signature that launched the same kernels have the same main kernel,
    whose name main_kernel is; null where they share the work.
    """
    computing = pl.col("kind").is_in(COMPUTING) & pl.col("owner_id").is_not_null()
    sets = (
        kernels.filter(computing)
        .group_by("owner_id")
        .agg(pl.col("name").unique().sort().str.join(_SEPARATOR).alias("kernel_set"))
    )
    joined = kernels.join(sets, on="owner_id", how="left", maintain_order="left")
    times: dict[tuple[int | None, str, str], dict[str, int]] = {}
    totals = (
        joined.filter(computing)
        .group_by(*_SET, "name")
        .agg(pl.col("duration_ns").sum())
        .sort("name")
    )
    for signature, phase, kernel_set, name, duration_ns in totals.iter_rows():
        times.setdefault((signature, phase, kernel_set), {})[name] = duration_ns
    rows = [
        (*key, main_kernel(of_name, products=key[0] is not None and _multiplies(costs[key[0]])))
        for key, of_name in times.items()
    ]
    mains = pl.DataFrame(
        rows,
        schema={
            "signature": kernels.schema["signature"],
            "phase": pl.String,
            "kernel_set": pl.String,
            "main_kernel": pl.String,
        },
        orient="row",
    )
    role = (
        pl.when(pl.col("owner_id").is_null())
        .then(None)
        .when(pl.col("kernel_set").is_null() | (pl.col("kernel_set") == pl.col("name")))
        .then(pl.lit("sole"))
        .when(~computing)
        .then(pl.lit("helper"))
        .when(pl.col("main_kernel").is_null())
        .then(pl.lit("shared"))
        .when(pl.col("main_kernel") == pl.col("name"))
        .then(pl.lit("main"))
        .otherwise(pl.lit("helper"))
    )
    return (
        joined.join(mains, on=_SET, how="left", maintain_order="left", nulls_equal=True)
        .with_columns(role=role)
        .drop("kernel_set")
    )


def main_kernel(times_ns: Mapping[str, int], *, products: bool) -> str | None:
    """The name of the kernel that does the work of a call; None where several share it.

    `times_ns` are the durations of its kernels by name. With `products` the work is of matrix
    products, which a kernel that is named after products does.
    """
    named = [name for name in times_ns if names_product(name)] if products else []
    candidates = named or list(times_ns)
    largest = max(candidates, key=lambda name: times_ns[name])
    rivals = [times_ns[name] for name in named if name != largest]
    if any(rival > _LARGEST_RIVAL * times_ns[largest] for rival in rivals):
        return None
    if times_ns[largest] < _SMALLEST_MAIN * sum(times_ns.values()):
        return None
    return largest


def _multiplies(cost: Cost | None) -> bool:
    return cost is not None and bool(cost.matmul_flops())
