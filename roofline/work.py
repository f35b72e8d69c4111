"""Which operator owns each piece of device work, and what that operator's calls cost.

The owner of a kernel is the innermost operator above its launch that has a cost model of its own.
A composite operator (aten::linear) costs what the operators inside it cost, so it owns only
kernels that it launches itself. Without any model the launching operator owns the kernel, at an
unknown cost.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.cost_models import cost_of, is_composite, is_modelled
from gpuprof.roofline.cost_models.call import MathMode, parse_call
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.op_tree import op_phases

_SIGNATURE = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")


@dataclass(frozen=True)
class Signature:
    """One operator with one set of arguments. `cost` is of a single call, None if unknown."""

    name: str
    # Shapes and types for people, "" where not recorded.
    detail: str
    cost: Cost | None
    # Why the cost is unknown; "" where it is known.
    reason: str


@dataclass(frozen=True)
class Work:
    """Device work of the profiled steps, with owners and costs.

    `kernels` has the capture's kernel columns plus duration_ns, owner_id (null: no operator),
    signature (index into `signatures`, null: no operator), phase, and compute_kernels: how many
    kernels that compute (not memcpy or memset) the owner's call launched.
    """

    kernels: pl.DataFrame
    signatures: tuple[Signature, ...]
    steps: int


def find_work(capture: Capture, math_mode: MathMode) -> Work:
    """The device work of an attributed one-rank capture.

    Work outside the profiled steps is left out where there are such steps.
    """
    kernels = capture.kernels
    steps = capture.steps.filter(pl.col("phase") == "profiled").height
    if steps:
        kernels = kernels.filter(pl.col("step").is_not_null())
    kernels = kernels.with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
        _owners(kernels["op_id"], capture.ops).alias("owner_id"),
    )
    owners = (
        kernels.select(pl.col("owner_id").drop_nulls().unique())
        .join(capture.ops, left_on="owner_id", right_on="op_id", how="left")
        .join(
            op_phases(capture).select("op_id", "phase"),
            left_on="owner_id",
            right_on="op_id",
            how="left",
        )
        .select("owner_id", "phase", *_SIGNATURE)
    )
    unique = owners.select(_SIGNATURE).unique(maintain_order=True).with_row_index("signature")
    owners = owners.join(unique, on=_SIGNATURE, how="left", nulls_equal=True)
    compute = (
        kernels.filter(pl.col("kind").is_in(["kernel", "op", "collective"]))
        .group_by("owner_id")
        .agg(pl.len().alias("compute_kernels"))
    )
    kernels = kernels.join(
        owners.select("owner_id", "signature", "phase"), on="owner_id", how="left"
    ).join(compute, on="owner_id", how="left")
    signatures = tuple(_signature(row, math_mode) for row in unique.iter_rows(named=True))
    return Work(kernels.with_columns(pl.col("phase").fill_null("")), signatures, max(steps, 1))


def _owners(op_ids: pl.Series, ops: pl.DataFrame) -> pl.Series:
    """For each launching op its owner; null stays null."""
    if ops.is_empty():
        return pl.Series("owner_id", [None] * len(op_ids), dtype=pl.Int64)
    names = ops["name"].unique()
    kinds = {name: is_modelled(name) and not is_composite(name) for name in names}
    owns = ops["name"].replace_strict(kinds, return_dtype=pl.Boolean).to_numpy()
    ids = ops["op_id"].to_numpy()
    order = np.argsort(ids)
    parents = _positions(ops["parent_id"], ids, order)
    launching = _positions(op_ids, ids, order)
    current = launching.copy()
    while (climbing := (current >= 0) & ~owns[current]).any():
        current[climbing] = parents[current[climbing]]
    found = np.where(current >= 0, current, launching)
    return pl.select(
        pl.when(pl.Series(found >= 0)).then(pl.Series(ids[found])).alias("owner_id")
    ).to_series()


def _positions(
    wanted: pl.Series, ids: NDArray[np.int64], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where each of `wanted` stands in `ids` (`order` sorts them); -1 for null or absent."""
    values = wanted.fill_null(-1).to_numpy()
    places = order[np.clip(np.searchsorted(ids, values, sorter=order), 0, len(ids) - 1)]
    return np.where(wanted.is_not_null().to_numpy() & (ids[places] == values), places, -1)


def _signature(row: dict[str, str | None], math_mode: MathMode) -> Signature:
    name = row["name"] or ""
    detail = _detail(row["input_dims"], row["input_types"])
    call = parse_call(
        name,
        row["input_dims"],
        row["input_types"],
        row["input_strides"],
        row["concrete_inputs"],
        math_mode,
    )
    if not is_modelled(name):
        return Signature(name, detail, None, f"no cost model for {name}")
    if call is None:
        return Signature(name, detail, None, "shapes were not recorded (record_shapes=True)")
    cost = cost_of(call)
    reason = "" if cost is not None else f"the cost model of {name} does not cover this call"
    return Signature(name, detail, cost, reason)


def _detail(input_dims: str | None, input_types: str | None) -> str:
    if input_dims is None:
        return ""
    return input_dims if input_types is None else f"{input_dims} {input_types}"
