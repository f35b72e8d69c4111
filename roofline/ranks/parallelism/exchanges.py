"""Collectives within the passes: tensor parallelism, and parameters that are sharded (FSDP)."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from gpuprof.roofline.parallelism_figures import Exchange, GroupExchanges
from gpuprof.roofline.ranks.parallelism.placed import (
    BACKWARD,
    FORWARD,
    in_forward,
    is_regular,
    mean_bytes,
    mean_ns,
    steps_of,
)

_GATHER: Final = "all-gather"
_SCATTER: Final = "reduce-scatter"
_REDUCE: Final = "all-reduce"
# What modules that repeat have in place of their numbers: "model.layers.*.attention".
_REPEATED: Final = "*"
# Fewer of one size could be anything.
_FEWEST: Final = 2


def sharded_parameters(group: str, ranks: int | None, own: pl.DataFrame) -> GroupExchanges | None:
    """Parameters gathered for their layer and gradients scattered after it, as FSDP does.

    None unless the group gathers and scatters alone, alike in all steps, and scatters nothing in
    the forward pass: that would be activations.
    """
    found = set(own["kind"])
    forward = own.filter(in_forward())
    if not found <= {_GATHER, _SCATTER} or _GATHER not in found or not is_regular(own):
        return None
    if _SCATTER in set(forward["kind"]):
        return None
    # Without a backward pass there are no gradients to scatter.
    if (_SCATTER in found) != bool(own["backward_ns"].min()):
        return None
    return GroupExchanges(group=group, ranks=ranks, exchanges=tuple(_exchanges(own)))


def tensor_parallelism(
    group: str, ranks: int | None, own: pl.DataFrame, work: pl.DataFrame
) -> GroupExchanges | None:
    """Activations that are summed, or gathered and scattered, within each pass.

    None unless the forward pass has several messages of one kind, all of one size, alike in all
    steps; gathers count only beside scatters, which parameters do not need there.
    """
    forward = own.filter(in_forward())
    found = set(forward["kind"])
    if found not in ({_REDUCE}, {_GATHER, _SCATTER}) or not is_regular(own):
        return None
    sizes = forward["message_bytes"].unique()
    if sizes.null_count() or sizes.len() != 1:
        return None
    if forward.height < _FEWEST * len(found) * steps_of(own):
        return None
    same = own.filter(pl.col("message_bytes") == sizes.item(), pl.col("kind").is_in(list(found)))
    return GroupExchanges(
        group=group, ranks=ranks, exchanges=tuple(_exchanges(same)), layers=layers_of(work)
    )


def layers_of(work: pl.DataFrame) -> int | None:
    """How often a step's forward passes call a layer; None where no names of modules tell.

    That is how often most modules that repeat call each of their operators.
    """
    repeated = work.filter(
        pl.col("phase") == FORWARD, pl.col("module").str.contains(_REPEATED, literal=True)
    )
    calls = repeated.group_by("step", "module", "name", "input_dims").agg(pl.col("calls").sum())
    by_module = calls.group_by("step", "module").agg(pl.col("calls").min())["calls"]
    layers = by_module.mode().min()
    return layers if isinstance(layers, int) else None


def _exchanges(rows: pl.DataFrame) -> Iterator[Exchange]:
    """`rows` by collective and pass, in order of the first of each."""
    steps = steps_of(rows)
    with_pass = rows.with_columns(
        phase=pl.when(in_forward()).then(pl.lit(FORWARD)).otherwise(pl.lit(BACKWARD)),
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    for (phase, kind), several in with_pass.group_by("phase", "kind", maintain_order=True):
        hidden = several.filter(2 * pl.col("exposed_ns") <= pl.col("duration_ns"))
        yield Exchange(
            collective=str(kind),
            phase=str(phase),
            calls=round(several.height / steps),
            total_bytes=mean_bytes(several["message_bytes"], steps),
            duration_ns=mean_ns(several, "duration_ns", steps),
            exposed_ns=mean_ns(several, "exposed_ns", steps),
            hidden=round(hidden.height / steps),
        )
