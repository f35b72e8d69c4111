"""Roofline points: device work grouped by kernel, by operator call, and as one step."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import Bottleneck, Level, Phase, RooflinePoint
from gpuprof.roofline.bottleneck import Launch, classify
from gpuprof.roofline.ceilings import Roof
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.roof_time import RoofTime, roof_time
from gpuprof.roofline.work import Work

_COPIES = ("memcpy", "memset")
NO_OP = "(no operator)"


@dataclass(frozen=True)
class Machine:
    """What the work ran on."""

    device: Device | None
    roof: Roof | None

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


def op_points(work: Work, machine: Machine) -> tuple[RooflinePoint, ...]:
    """One point for each operator signature and phase."""
    groups = work.kernels.group_by("signature", "phase", maintain_order=True).agg(
        pl.col("owner_id").n_unique().alias("calls"),
        pl.len().alias("kernels"),
        pl.col("duration_ns").sum(),
        pl.col("bytes").sum().alias("copied_bytes"),
    )
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
            total = _times(signature.cost, calls)
        points.append(
            _point(
                "op",
                name,
                detail,
                total,
                machine,
                phase=row["phase"],
                calls=calls,
                device_ns=row["duration_ns"],
                all_ns=all_ns,
                steps=work.steps,
                reason=reason,
            )
        )
    return _largest_first(points)


def kernel_points(work: Work, machine: Machine) -> tuple[RooflinePoint, ...]:
    """One point for each kernel name, launch configuration and operator signature.

    A kernel has its operator's cost where it is the only one that the operator launched;
    otherwise the cost is known for the operator alone.
    """
    grid = [f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz"]
    groups = work.kernels.group_by(
        "name", "kind", "signature", "phase", *grid, maintain_order=True
    ).agg(
        pl.len().alias("calls"),
        pl.col("duration_ns").sum(),
        pl.col("compute_kernels").max(),
        pl.col("bytes").sum().alias("copied_bytes"),
        pl.col("bytes").is_not_null().all().alias("bytes_known"),
    )
    all_ns = _sum(groups["duration_ns"])
    points = []
    for row in groups.iter_rows(named=True):
        signature = None if row["signature"] is None else work.signatures[row["signature"]]
        total, reason = _kernel_total(row, signature.cost if signature else None)
        if not reason and signature is not None:
            reason = signature.reason
        if signature is None and not reason:
            reason = "no operator launched it"
        points.append(
            _point(
                "kernel",
                row["name"],
                _launch_text(row) or (signature.detail if signature else ""),
                total,
                machine,
                op=signature.name if signature else "",
                phase=row["phase"],
                calls=row["calls"],
                device_ns=row["duration_ns"],
                all_ns=all_ns,
                steps=work.steps,
                reason=reason,
                launch=Launch(
                    _product(row, "grid"),
                    machine.device.multiprocessors if machine.device else None,
                ),
            )
        )
    return _largest_first(points)


def step_point(
    ops: Sequence[RooflinePoint], machine: Machine, *, steps: int, bottleneck: Bottleneck
) -> RooflinePoint | None:
    """All device work of the profiled steps as one point; None where there is none.

    Its counts are the sums of what is known, so where coverage is partial they are lower bounds.
    """
    if not ops:
        return None
    flops = _add(part for point in ops if point.flops for part in point.flops)
    read = sum(point.bytes_read or 0 for point in ops)
    written = sum(point.bytes_written or 0 for point in ops)
    device_ns = sum(point.device_ns for point in ops)
    partial = any(point.flops is None or point.total_bytes is None for point in ops)
    total = Total(
        flops,
        read,
        written,
        ("some device work has no cost model: counts are lower bounds",) if partial else (),
    )
    return _point(
        "step",
        "step",
        "",
        total,
        machine,
        calls=steps,
        device_ns=device_ns,
        all_ns=device_ns,
        steps=steps,
        reason="",
        bottleneck=bottleneck,
    )


def _kernel_total(row: dict[str, Any], cost: Cost | None) -> tuple[Total, str]:
    """Counts of one group of kernels, and why they are unknown."""
    if row["kind"] in _COPIES:
        if not row["bytes_known"]:
            return UNKNOWN, "the trace does not say how many bytes it moved"
        if "DtoD" not in row["name"] and row["kind"] == "memcpy":
            return UNKNOWN, f"moved {row['copied_bytes']} bytes over the host link"
        read = row["copied_bytes"] if row["kind"] == "memcpy" else 0
        return Total((), read, row["copied_bytes"]), ""
    if row["compute_kernels"] is not None and row["compute_kernels"] > 1:
        return UNKNOWN, f"one of {row['compute_kernels']} kernels of its operator: see the operator"
    return _times(cost, row["calls"]), ""


def _times(cost: Cost | None, calls: int) -> Total:
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


def _point(
    level: Level,
    name: str,
    detail: str,
    total: Total,
    machine: Machine,
    *,
    calls: int,
    device_ns: int,
    all_ns: int,
    steps: int,
    reason: str,
    op: str = "",
    phase: Phase = "",
    launch: Launch = Launch(None, None),  # noqa: B008 - frozen
    bottleneck: Bottleneck | None = None,
) -> RooflinePoint:
    times = roof_time(total.flops, total.bytes_moved, machine.roof)
    if bottleneck is None:
        bottleneck = classify(
            times,
            calls=calls,
            device_ns=device_ns,
            steps=steps,
            device_kind=machine.kind,
            launch=launch,
            reason_unknown=reason,
        )
    count = None if total.flops is None else sum(part.count for part in total.flops)
    moved = total.bytes_moved
    return RooflinePoint(
        level=level,
        name=name,
        detail=detail,
        op=op,
        phase=phase,
        calls=calls,
        device_ns=device_ns,
        device_fraction=device_ns / all_ns if all_ns else 0.0,
        flops=total.flops,
        bytes_read=total.bytes_read,
        bytes_written=total.bytes_written,
        arithmetic_intensity=_ratio(count, moved),
        flops_per_s=_rate(count, device_ns),
        bytes_per_s=_rate(moved, device_ns),
        bottleneck=bottleneck,
        assumptions=total.assumptions,
        **_roof_fields(times, device_ns),
    )


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
    grid, block = ("x".join(str(row[f"{part}_{axis}"]) for axis in "xyz") for part in _PARTS)
    return f"grid {grid}, block {block}"


_PARTS = ("grid", "block")


def _largest_first(points: list[RooflinePoint]) -> tuple[RooflinePoint, ...]:
    return tuple(sorted(points, key=lambda point: (-point.device_ns, point.name, point.detail)))


def _sum(column: pl.Series) -> int:
    return int(column.sum())
