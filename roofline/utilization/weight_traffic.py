"""What a step has to read of its model: weights, and keys and values of attention.

The cost of each call says it (`Cost.weight_bytes`, `Cost.key_value_bytes`). Each call reads its
operands once. A product whose model does not say it leaves the step's traffic unknown, and so does
one without a model, which its name or its kernels' names tell.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.kernel_names.product_names import names_product
from gpuprof.roofline.work.call_groups import call_groups, has_backward
from gpuprof.roofline.work.work import Signature, Work

# How many operators a sentence names.
_NAMED: Final = 3
_NO_MODEL: Final = Cost(flops=None, bytes_read=None, bytes_written=None)


@dataclass(frozen=True)
class WeightTraffic:
    """Bytes that one profiled step reads. None in training, or where a part is not known."""

    weight_bytes: int | None
    key_value_bytes: int | None
    # Why either is unknown: by the name of an operator, or of a kernel that has none.
    reasons: Mapping[str, str]


def weight_traffic(work: Work) -> WeightTraffic:
    """What a step of `work` reads of weights, keys and values; a mean of the profiled steps."""
    if has_backward(work):
        return WeightTraffic(None, None, {})
    reasons = _kernels_without_operator(work)
    products = _products_by_name(work)
    weights: int | None = None if reasons else 0
    keys_values = weights
    for group in call_groups(work):
        signature = group.signature
        read = (signature.cost or _NO_MODEL).read_of_model(multiplies=signature in products)
        if None in read:
            reasons.setdefault(signature.name, signature.reason or _unsaid(*read))
        weights, keys_values = (
            None if before is None or of_call is None else before + group.calls * of_call
            for before, of_call in zip((weights, keys_values), read, strict=True)
        )
    return WeightTraffic(
        None if weights is None else round(weights / work.steps),
        None if keys_values is None else round(keys_values / work.steps),
        reasons,
    )


def why_no_mbu(traffic: WeightTraffic) -> str | None:
    """A sentence where something leaves `traffic` unknown."""
    if not traffic.reasons:
        return None
    named = [f"{name} ({reason})" for name, reason in traffic.reasons.items()]
    if len(named) > _NAMED:
        named[_NAMED:] = [f"{len(named) - _NAMED} more"]
    return f"MBU is unknown: bytes of weights, keys and values are missing for {', '.join(named)}"


def _unsaid(weights: int | None, keys_values: int | None) -> str:
    fields = {"weight_bytes": weights, "key_value_bytes": keys_values}
    return f"its cost has no {' and no '.join(name for name in fields if fields[name] is None)}"


def _products_by_name(work: Work) -> frozenset[Signature]:
    """Of the signatures without known FLOPs those that do products, as names tell."""
    uncounted = {
        index
        for index, signature in enumerate(work.signatures)
        if signature.cost is None or signature.cost.flops is None
    }
    kernels = work.kernels.filter(pl.col("signature").is_in(uncounted))
    return frozenset(
        work.signatures[index]
        for index, kernel in kernels.select("signature", "name").unique().iter_rows()
        if names_product(work.signatures[index].name) or names_product(kernel)
    )


def _kernels_without_operator(work: Work) -> dict[str, str]:
    """Kernels that do products and have no operator, by name, with the reason."""
    kernels = (
        work.kernels.filter(pl.col("signature").is_null())
        .group_by("name")
        .agg(replayed=pl.col("replay").is_not_null().any())
        .sort("name")
    )
    return {
        name: "a CUDA graph replayed it" if replayed else "no operator launched it"
        for name, replayed in kernels.iter_rows()
        if names_product(name)
    }
