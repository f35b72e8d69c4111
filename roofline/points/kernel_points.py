"""Roofline points of kernels: each has the work of its operator, where that is its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import polars as pl

from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.points.call_spread import spreads_by
from gpuprof.roofline.points.classify import WorkKey, WorkVerdict
from gpuprof.roofline.points.grouping import grouped, one_of, one_text_of
from gpuprof.roofline.points.points import (
    BYTES_UNKNOWN,
    COPIED,
    COPIES,
    COPY_NAME,
    KEY,
    DeviceTime,
    Identity,
    Machine,
    bottleneck_of,
    by_time,
    copied,
    point,
)
from gpuprof.roofline.points.total import UNKNOWN, Total, times_calls
from gpuprof.roofline.points.transfers import against_its_link, transfers_by
from gpuprof.roofline.points.work_readings import with_reading
from gpuprof.roofline.work.places import NOWHERE
from gpuprof.roofline.work.work import Work

# Kernels of `Work`, with `COPY_NAME`, that agree in these share a point.
KERNEL_KEY: Final = ("name", "kind", *KEY)
# The values of these columns.
KernelKey: TypeAlias = tuple[Any, ...]
# What the role of a kernel is; what has no owner has none.
_ROLES: Final = {
    "is_main": (pl.col("role") == "main").fill_null(False),
    "is_helper": (pl.col("role") == "helper").fill_null(False),
    "works": pl.col("role").is_in(("sole", "main")).fill_null(False),
}
_LAUNCH_COLUMNS = tuple(f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz")


def keyed_kernel_points(
    work: Work,
    machine: Machine,
    verdicts: Mapping[WorkKey, WorkVerdict],
    further: Sequence[str] = (),
) -> tuple[tuple[KernelKey, RooflinePoint], ...]:
    """One point for each kernel name and operator signature, with the verdict of all its work.

    Each with what its kernels agree in: the values of `KERNEL_KEY`, and of the columns `further`
    of the kernels, by which they are told apart too. The operator's cost counts at its main kernel;
    its other kernels say whose helpers they are.
    """
    keys = (*KERNEL_KEY, *further)
    kernels = work.kernels.with_columns(COPY_NAME)
    transfers = transfers_by(kernels, keys, machine.links)
    spreads = spreads_by(kernels, keys)
    readings = {} if machine.readings is None else machine.readings.by(kernels, keys)
    columns = ("owner_id", "duration_ns", "share", "main_kernel", "place", "caller", "bytes")
    groups = grouped(
        kernels.select(*keys, *columns, *_LAUNCH_COLUMNS, **_ROLES),
        keys,
        pl.len().alias("calls"),
        pl.col("owner_id").n_unique().alias("owners"),
        pl.col("duration_ns").sum(),
        pl.col("is_main").any().alias("any_main"),
        pl.col("is_helper").any().alias("any_helper"),
        pl.col("is_helper").all().alias("only_helpers"),
        pl.col("works").all().alias("only_works"),
        pl.col("share").n_unique().alias("shares"),
        pl.col("share").first(),
        pl.col("main_kernel").first(),
        one_of("place"),
        one_text_of("caller"),
        *COPIED,
        # The launch configuration, null where the launches differ in it.
        *(one_of(column) for column in _LAUNCH_COLUMNS),
    )
    all_ns = int(groups["duration_ns"].sum())
    points: list[tuple[KernelKey, RooflinePoint]] = []
    for row in groups.iter_rows(named=True):
        signature = None if row["signature"] is None else work.signatures[row["signature"]]
        verdict = verdicts[row["signature"], row["phase"], row["copy_name"]]
        op = signature.name if signature else ""
        total, note = _kernel_total(row, signature.cost if signature else None, op)
        times = machine.times(UNKNOWN if note else total)
        binding = times.binding
        faster = binding is not None and binding.ns > row["duration_ns"]
        if faster and row["any_main"] and verdict.lost_fraction:
            # Faster than its roof, while the operator is not: its helpers do part of the work.
            total, note = UNKNOWN, _shared(op)
            times = machine.times(total)
        time = DeviceTime(row["calls"], row["duration_ns"], all_ns, work.steps)
        identity = Identity(
            "kernel",
            row["name"],
            _launch_text(row) or (signature.detail if signature else ""),
            op=op,
            op_detail=signature.detail if signature else "",
            kind=row["kind"],
            phase=row["phase"],
            place=NOWHERE if row["place"] is None else work.places.table[row["place"]],
            caller=row["caller"] or "",
        )
        bottleneck = bottleneck_of(verdict, times, time, note)
        key = tuple(row[key] for key in keys)
        found = point(identity, time, total, times, bottleneck, spreads.get(key))
        found = against_its_link(found, transfers.get(key), steps=work.steps)
        points.append((key, with_reading(found, readings.get(key), total, machine.roof)))
    return tuple(sorted(points, key=lambda keyed: by_time(keyed[1])))


def _kernel_total(row: dict[str, Any], cost: Cost | None, op: str) -> tuple[Total, str]:
    """Counts of one group of kernels, and what it is where it is not all that its operator ran."""
    note = _shared(op)
    if row["only_helpers"] and row["main_kernel"] is not None:
        note = f"a helper of {op}, whose work counts at {row['main_kernel']}"
    if row["kind"] in COPIES:
        note = note if row["any_helper"] else "" if row["bytes_known"] else BYTES_UNKNOWN
        return copied(row), note
    if cost is None or row["signature"] is None:
        return UNKNOWN, ""
    if not row["only_works"] or row["shares"] > 1:
        return UNKNOWN, note
    share = row["share"]
    if share is not None:
        part = cost.shares[share]
        own = Cost(
            flops=part.flops,
            bytes_read=part.bytes_read,
            bytes_written=part.bytes_written,
            assumptions=cost.assumptions,
        )
        return times_calls(own, row["owners"]), ""
    total = times_calls(cost, row["owners"])
    if row["any_main"]:
        said = f"all of the work of {op} is counted here, though its helpers may do a part of it"
        total = replace(total, assumptions=(*total.assumptions, said))
    return total, ""


def _shared(op: str) -> str:
    return f"one of several kernels that share the work of {op}: see the operator"


def _launch_text(row: dict[str, Any]) -> str:
    if row["grid_x"] is None or row["block_x"] is None:
        return ""
    grid, block = (
        "x".join(str(row[f"{part}_{axis}"]) for axis in "xyz") for part in ("grid", "block")
    )
    return f"grid {grid}, block {block}"
