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
_SET: Final = ("signature", "phase", "kernel_set")


def with_roles(kernels: pl.DataFrame, costs: Sequence[Cost | None]) -> pl.DataFrame:
    """`kernels` with role and main_kernel, both null for what has no owner.

    Reads the columns owner_id, signature (an index into `costs`), phase, kind, name and
    duration_ns. Calls of one signature that launched the same kernels have the same main kernel,
    whose name main_kernel is; null where they share the work.
    """
    # Numbers, which are quicker to compare than names of hundreds of characters.
    coded = kernels.with_columns(
        code=pl.col("name").cast(pl.Categorical).to_physical(),
        computes=pl.col("kind").is_in(COMPUTING) & pl.col("owner_id").is_not_null(),
    )
    works = coded.filter("computes")
    owners = works.group_by("owner_id").agg(
        pl.col("code").min().alias("main_code"),
        alone=pl.col("code").min() == pl.col("code").max(),
    )
    several = owners.filter(~pl.col("alone")).select("owner_id")
    mains = pl.concat(
        [
            owners.filter("alone").select("owner_id", "main_code", "alone"),
            _of_several(works.join(several, on="owner_id"), costs),
        ]
    )
    names = works.unique("code").select(main_code="code", main_kernel="name")
    role = (
        pl.when(pl.col("owner_id").is_null())
        .then(None)
        .when(pl.col("alone").is_null() | (pl.col("alone") & pl.col("computes")))
        .then(pl.lit("sole"))
        .when(pl.col("computes") & pl.col("main_code").is_null())
        .then(pl.lit("shared"))
        .when(pl.col("computes") & (pl.col("main_code") == pl.col("code")))
        .then(pl.lit("main"))
        .otherwise(pl.lit("helper"))
    )
    roles = (
        coded.select("owner_id", "code", "computes")
        .join(mains, on="owner_id", how="left", maintain_order="left")
        .join(names, on="main_code", how="left", maintain_order="left")
        .select("main_kernel", role=role)
    )
    return pl.concat([kernels, roles], how="horizontal")


def _of_several(works: pl.DataFrame, costs: Sequence[Cost | None]) -> pl.DataFrame:
    """A row (owner_id, main_code, alone) for each owner, all of several kernels."""
    sets = (
        works.select("owner_id", "code")
        .unique()
        .sort("owner_id", "code")
        .group_by("owner_id")
        .agg(pl.col("code").cast(pl.String).str.join(",").alias("kernel_set"))
    )
    works = works.join(sets, on="owner_id")
    times: dict[tuple[int, str, str], dict[str, int]] = {}
    code_of: dict[str, int] = {}
    totals = works.group_by(*_SET, "code").agg(pl.col("name").first(), pl.col("duration_ns").sum())
    for signature, phase, names, code, name, duration_ns in totals.sort("name").iter_rows():
        times.setdefault((signature, phase, names), {})[name] = duration_ns
        code_of[name] = code
    rows = []
    for key, of_name in times.items():
        main = main_kernel(of_name, products=_multiplies(costs[key[0]]))
        rows.append((*key, None if main is None else code_of[main]))
    schema = {column: works.schema[column] for column in (*_SET, "code")}
    mains = pl.DataFrame(rows, schema=schema, orient="row")
    owners = works.unique("owner_id").select("owner_id", *_SET)
    return owners.join(mains, on=_SET).select("owner_id", main_code="code", alone=pl.lit(False))


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
