"""Roofline points: device work grouped by kernel, by operator call, and as one step."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import Bottleneck, Level, RooflinePoint
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.machine.ceilings import Roof
from gpuprof.roofline.machine.roof_time import RoofTime, roof_time
from gpuprof.roofline.phase import Phase
from gpuprof.roofline.points.bottleneck import Launch, classify
from gpuprof.roofline.points.transfers import Links, against_its_link, transfers_by
from gpuprof.roofline.work.work import Work

_COPIES = ("memcpy", "memset")
NO_OP = "(no operator)"
_LAUNCH_COLUMNS = tuple(f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz")


@dataclass(frozen=True)
class Machine:
    """What the work ran on."""

    device: Device | None
    roof: Roof | None
    # All ranks of the job are known to be devices of one host.
    one_host: bool = False

    @property
    def links(self) -> Links:
        """Its links to the host and to other devices."""
        return Links(self.roof, self.one_host)

    @property
    def kind(self) -> str:
        """The device kind, "cuda" where unknown."""
        return "cuda" if self.device is None else self.device.kind


@dataclass(frozen=True)
class Total:
    """Counts of several calls together; None where one of them is unknown."""

    flops: tuple[Flops, ...] | None
    bytes_read: int | None
    bytes_written: int | None
    assumptions: tuple[str, ...] = ()

    @property
    def bytes_moved(self) -> int | None:
        """Bytes read plus bytes written."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written


UNKNOWN = Total(None, None, None)


@dataclass(frozen=True)
class Identity:
    """What a point is a point of; the fields are those of `RooflinePoint`."""

    level: Level
    name: str
    detail: str = ""
    op: str = ""
    op_detail: str = ""
    kind: str = ""
    phase: Phase = ""


@dataclass(frozen=True)
class DeviceTime:
    """How long `calls` calls took in all, of the device time of all points of their level."""

    calls: int
    device_ns: int
    all_ns: int
    # Profiled steps that the calls are of.
    steps: int


def op_points(work: Work, machine: Machine) -> tuple[RooflinePoint, ...]:
    """One point for each operator signature and phase."""
    groups = work.kernels.group_by("signature", "phase", maintain_order=True).agg(
        pl.col("owner_id").n_unique().alias("calls"),
        pl.len().alias("kernels"),
        pl.col("duration_ns").sum(),
    )
    transfers = transfers_by(work.kernels, ("signature", "phase"), machine.links)
    all_ns = _sum(groups["duration_ns"])
    points = []
    for row in groups.iter_rows(named=True):
        if row["signature"] is None:
            name, detail, reason, total = NO_OP, "", "no operator launched it", UNKNOWN
            calls = row["kernels"]
        else:
            signature = work.signatures[row["signature"]]
            name, detail, reason = signature.name, signature.detail, signature.reason
            calls = row["calls"]
            total = times_calls(signature.cost, calls)
        found = point(
            Identity("op", name, detail, phase=row["phase"]),
            DeviceTime(calls, row["duration_ns"], all_ns, work.steps),
            total,
            machine,
            reason=reason,
        )
        transfer = transfers.get((row["signature"], row["phase"]))
        points.append(against_its_link(found, transfer, steps=work.steps))
    return largest_first(points)


def kernel_points(work: Work, machine: Machine) -> tuple[RooflinePoint, ...]:
    """One point for each kernel name and operator signature.

    The kernels of a name have their operator's cost where they are all that the operator launched
    to compute; otherwise the cost is known for the operator alone.
    """
    keys = ("name", "kind", "signature", "phase")
    groups = work.kernels.group_by(*keys, maintain_order=True).agg(
        pl.len().alias("calls"),
        pl.col("owner_id").n_unique().alias("owners"),
        pl.col("duration_ns").sum(),
        pl.col("compute_kernels").max(),
        pl.col("bytes").sum().alias("copied_bytes"),
        pl.col("bytes").is_not_null().all().alias("bytes_known"),
        # The launch configuration, null where the launches differ in it.
        *(
            pl.when(pl.col(column).n_unique() == 1).then(pl.col(column).first()).alias(column)
            for column in _LAUNCH_COLUMNS
        ),
    )
    transfers = transfers_by(work.kernels, keys, machine.links)
    all_ns = _sum(groups["duration_ns"])
    points = []
    for row in groups.iter_rows(named=True):
        signature = None if row["signature"] is None else work.signatures[row["signature"]]
        total, reason = _kernel_total(row, signature.cost if signature else None)
        if not reason:
            reason = signature.reason if signature is not None else "no operator launched it"
        found = point(
            Identity(
                "kernel",
                row["name"],
                _launch_text(row) or (signature.detail if signature else ""),
                op=signature.name if signature else "",
                op_detail=signature.detail if signature else "",
                kind=row["kind"],
                phase=row["phase"],
            ),
            DeviceTime(row["calls"], row["duration_ns"], all_ns, work.steps),
            total,
            machine,
            launch=Launch(
                _product(row, "grid"),
                machine.device.multiprocessors if machine.device else None,
            ),
            reason=reason,
        )
        transfer = transfers.get(tuple(row[key] for key in keys))
        points.append(against_its_link(found, transfer, steps=work.steps))
    return largest_first(points)


def step_point(
    ops: Sequence[RooflinePoint], machine: Machine, *, steps: int, bottleneck: Bottleneck
) -> RooflinePoint | None:
    """All device work of the profiled steps as one point; None where there is none.

    Its counts are the sums of what is known, so where coverage is partial they are lower bounds.
    """
    if not ops:
        return None
    device_ns = sum(op.device_ns for op in ops)
    total = sum_known(Total(op.flops, op.bytes_read, op.bytes_written) for op in ops)
    found = point(
        Identity("step", "step"), DeviceTime(steps, device_ns, device_ns, steps), total, machine
    )
    return msgspec.structs.replace(found, bottleneck=bottleneck)


def _kernel_total(row: dict[str, Any], cost: Cost | None) -> tuple[Total, str]:
    """Counts of one group of kernels, and why they are unknown."""
    if row["kind"] in _COPIES:
        if not row["bytes_known"]:
            return UNKNOWN, "the trace does not say how many bytes it moved"
        read = row["copied_bytes"] if row["kind"] == "memcpy" else 0
        return Total((), read, row["copied_bytes"]), ""
    if row["compute_kernels"] is None or cost is None:
        return UNKNOWN, ""
    if row["calls"] != row["owners"] * row["compute_kernels"]:
        return UNKNOWN, f"one of {row['compute_kernels']} kernels of its operator: see the operator"
    return times_calls(cost, row["owners"]), ""


def sum_known(totals: Iterable[Total]) -> Total:
    """The sum of what is known, marked as a lower bound where something is not."""
    parts = list(totals)
    flops = [part.flops for part in parts if part.flops is not None]
    moved = [part for part in parts if part.bytes_moved is not None]
    partial = len(flops) < len(parts) or len(moved) < len(parts)
    return Total(
        _add(one for several in flops for one in several) if flops else None,
        sum(part.bytes_read or 0 for part in moved) if moved else None,
        sum(part.bytes_written or 0 for part in moved) if moved else None,
        ("some device work has no cost model: counts are lower bounds",) if partial else (),
    )


def times_calls(cost: Cost | None, calls: int) -> Total:
    """The counts of `calls` calls that cost `cost` each."""
    if cost is None:
        return UNKNOWN
    flops = (
        None
        if cost.flops is None
        else _add(Flops(part.kind, part.precision, part.count * calls) for part in cost.flops)
    )
    return Total(
        flops,
        None if cost.bytes_read is None else cost.bytes_read * calls,
        None if cost.bytes_written is None else cost.bytes_written * calls,
        cost.assumptions,
    )


def _add(parts: Iterable[Flops]) -> tuple[Flops, ...]:
    counts: dict[tuple[str, str], int] = {}
    for part in parts:
        key = (part.kind, part.precision)
        counts[key] = counts.get(key, 0) + part.count
    return tuple(
        Flops("matmul" if kind == "matmul" else "vector", precision, count)
        for (kind, precision), count in sorted(counts.items())
    )


def point(
    identity: Identity,
    time: DeviceTime,
    total: Total,
    machine: Machine,
    *,
    launch: Launch | None = None,
    reason: str = "",
) -> RooflinePoint:
    """The point of work of one kind; `reason` says why its counts are unknown."""
    times = roof_time(total.flops, total.bytes_moved, machine.roof)
    bottleneck = classify(
        times,
        calls=time.calls,
        device_ns=time.device_ns,
        steps=time.steps,
        device_kind=machine.kind,
        launch=launch or Launch(None, None),
        reason_unknown=reason or _why_no_roof(total, machine),
    )
    count = None if total.flops is None else sum(part.count for part in total.flops)
    moved = total.bytes_moved
    return RooflinePoint(
        level=identity.level,
        name=identity.name,
        detail=identity.detail,
        op=identity.op,
        op_detail=identity.op_detail,
        kind=identity.kind,
        phase=identity.phase,
        calls=time.calls,
        device_ns=time.device_ns,
        device_fraction=time.device_ns / time.all_ns if time.all_ns else 0.0,
        flops=total.flops,
        bytes_read=total.bytes_read,
        bytes_written=total.bytes_written,
        arithmetic_intensity=_ratio(count, moved),
        flops_per_s=_rate(count, time.device_ns),
        bytes_per_s=_rate(moved, time.device_ns),
        bottleneck=bottleneck,
        assumptions=total.assumptions,
        **_roof_fields(times, time.device_ns),
    )


def _why_no_roof(total: Total, machine: Machine) -> str:
    if total.flops is None or total.bytes_moved is None:
        missing = "FLOPs" if total.flops is None else "bytes"
        return f"its {missing} are unknown: the trace does not say enough of its arguments"
    if machine.roof is None:
        return "no ceiling is known for this device: run gpuprof calibrate on it"
    return "no ceiling is known for its precision"


def _roof_fields(times: RoofTime, device_ns: int) -> dict[str, Any]:
    binding = times.binding
    if binding is None:
        return {}
    return {
        "roof_ns": round(binding.ns),
        "roof": binding.ceiling.label,
        "roof_fraction": binding.ns / device_ns if device_ns > 0 else None,
    }


def _ratio(numerator: int | None, denominator: int | None) -> float | None:
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def _rate(count: int | None, device_ns: int) -> float | None:
    return None if count is None or device_ns <= 0 else count / device_ns * 1e9


def _product(row: dict[str, Any], part: str) -> int | None:
    sizes = [row[f"{part}_{axis}"] for axis in "xyz"]
    return None if None in sizes else math.prod(sizes)


def _launch_text(row: dict[str, Any]) -> str:
    if row["grid_x"] is None or row["block_x"] is None:
        return ""
    grid, block = (
        "x".join(str(row[f"{part}_{axis}"]) for axis in "xyz") for part in ("grid", "block")
    )
    return f"grid {grid}, block {block}"


def largest_first(points: Iterable[RooflinePoint]) -> tuple[RooflinePoint, ...]:
    """`points` by device time, in an order that does not depend on the input's."""
    return tuple(sorted(points, key=lambda p: (-p.device_ns, p.name, p.detail)))


def _sum(column: pl.Series) -> int:
    return int(column.sum())
