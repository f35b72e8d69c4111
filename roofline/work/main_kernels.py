"""Which of the kernels that one operator call launched does its work, and which only help it.

Split-K products add their parts in a second kernel, attention's backward passes prepare and convert
in kernels of their own, and layouts are converted around a convolution. The operator's FLOPs and
bytes then count at its main kernel. The two gradients of a convolution have a kernel each, whose
share of the work its name tells. Where no kernel does most of the work, several share it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import polars as pl

from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.kernel_names.product_names import names_product

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
    """`kernels` with role, main_kernel and share, all null for what has no owner.

    Reads the columns owner_id, signature (an index into `costs`), phase, kind, name and
    duration_ns. Calls of one signature that launched the same kernels have the same main kernels,
    whose names main_kernel holds; null where they share the work. share is the index of what a main
    kernel does into its cost's `shares`, null where that is all of it.
    """
    # Numbers, which are quicker to compare than names of hundreds of characters.
    coded = kernels.select(
        *("owner_id", "signature", "phase", "name", "duration_ns"),
        code=pl.col("name").cast(pl.Categorical).to_physical(),
        computes=pl.col("kind").is_in(COMPUTING) & pl.col("owner_id").is_not_null(),
    )
    works = coded.filter("computes")
    owners = works.group_by("owner_id").agg(
        pl.col("name").first().alias("main_kernel"),
        alone=pl.col("code").min() == pl.col("code").max(),
    )
    several = owners.filter(~pl.col("alone")).select("owner_id", "alone")
    mains = _mains_of_several(works.join(several, on="owner_id"), costs)
    names = mains.group_by("owner_id").agg(
        pl.col("name").sort().str.join(" and ").alias("main_kernel")
    )
    told = pl.concat(
        [
            owners.filter("alone").select("owner_id", "alone", "main_kernel"),
            several.join(names, on="owner_id", how="left"),
        ]
    )
    role = (
        pl.when(pl.col("owner_id").is_null())
        .then(None)
        .when(pl.col("alone").is_null() | (pl.col("alone") & pl.col("computes")))
        .then(pl.lit("sole"))
        .when(pl.col("computes") & pl.col("main_kernel").is_null())
        .then(pl.lit("shared"))
        .when(pl.col("computes") & pl.col("is_main").is_not_null())
        .then(pl.lit("main"))
        .otherwise(pl.lit("helper"))
    )
    roles = (
        coded.select("owner_id", "code", "computes")
        .join(told, on="owner_id", how="left", maintain_order="left")
        .join(
            mains.select("owner_id", "code", "share", is_main=pl.lit(True)),
            on=["owner_id", "code"],
            how="left",
            maintain_order="left",
        )
        .select("main_kernel", "share", role=role)
    )
    return pl.concat([kernels, roles], how="horizontal")


def _mains_of_several(works: pl.DataFrame, costs: Sequence[Cost | None]) -> pl.DataFrame:
    """A row (owner_id, code, name, share) for each main kernel of owners of several kernels."""
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
    rows = [
        (*key, code_of[name], name, share)
        for key, of_name in times.items()
        for name, share in main_kernels(of_name, costs[key[0]]).items()
    ]
    schema = {column: works.schema[column] for column in (*_SET, "code", "name")}
    mains = pl.DataFrame(rows, schema={**schema, "share": pl.Int64}, orient="row")
    owners = works.unique("owner_id").select("owner_id", *_SET)
    return owners.join(mains, on=_SET).select("owner_id", "code", "name", "share")


def main_kernels(times_ns: Mapping[str, int], cost: Cost | None) -> dict[str, int | None]:
    """The kernels of a call that do its work, each with the index of its share.

    One kernel with None does all of it. {} where they share it in parts that are not known.
    `times_ns` are the durations of the kernels by name.
    """
    products = cost is not None and bool(cost.matmul_flops())
    if cost is not None and (found := _by_share(times_ns, cost)):
        return found
    name = main_kernel(times_ns, products=products)
    return {} if name is None else {name: None}


def _by_share(times_ns: Mapping[str, int], cost: Cost) -> dict[str, int | None]:
    """A kernel for each share of `cost`; {} where names do not tell them."""
    found: dict[str, int | None] = {}
    for index, share in enumerate(cost.shares):
        named = [name for name in times_ns if re.search(share.kernel, name, re.IGNORECASE)]
        if not named:
            return {}
        found[max(named, key=lambda name: times_ns[name])] = index
    if len(found) < len(cost.shares):
        return {}
    smallest = min((times_ns[name] for name in found), default=0)
    others = [name for name in times_ns if name not in found and names_product(name)]
    return {} if any(times_ns[name] > _LARGEST_RIVAL * smallest for name in others) else found


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
