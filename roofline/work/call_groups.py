"""How often each operator signature was called, by phase and by whether it repeated work."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.work.work import Signature, Work


@dataclass(frozen=True)
class CallGroup:
    """Calls of one signature that launched device work, over all profiled steps."""

    signature: Signature
    phase: str
    # Activation checkpointing ran them a second time.
    repeated: bool
    calls: int


def call_groups(work: Work) -> Iterator[CallGroup]:
    """All calls of `work` that have an owner. One with several kernels counts once."""
    owners = (
        work.kernels.select("signature", "owner_id", "phase", pl.col("recompute").fill_null(False))
        .drop_nulls()
        # Of an owner all else here is the same.
        .filter(pl.col("owner_id").is_first_distinct())
        .group_by("signature", "phase", "recompute")
        .len()
        .sort("signature", "phase", "recompute")
    )
    for index, phase, repeated, calls in owners.iter_rows():
        yield CallGroup(work.signatures[index], phase, repeated, calls)


def has_backward(work: Work) -> bool:
    """Whether the steps train."""
    return bool((work.kernels["phase"] == "backward").any())


def full_matmul_flops(cost: Cost) -> int:
    """Matmul operations of one call with causal attention counted in full; 0 where unknown."""
    if cost.full_attention_flops is not None and cost.flops is not None:
        return cost.full_attention_flops
    return cost.matmul_flops() or 0


def full_recomputed_flops(cost: Cost) -> int:
    """`recomputed_flops` of one call with causal attention counted in full.

    The share of the scores in an attention backward does not depend on how pairs are counted.
    """
    matmul = cost.matmul_flops()
    if cost.full_attention_flops is None or not matmul:
        return cost.recomputed_flops
    return cost.full_attention_flops * cost.recomputed_flops // matmul
