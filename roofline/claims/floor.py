"""The least time that rows of the device table allow for claimed work.

A claim names a GPU without its variant, or none, so the fastest row counts: what that cannot do,
none can.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpuprof.roofline.claims.work import ClaimedWork
from gpuprof.roofline.machine.ceilings import Ceiling, Roof, datasheet_ceilings
from gpuprof.roofline.machine.devices import DeviceSpec
from gpuprof.roofline.machine.roof_time import Traffic, roof_time


@dataclass(frozen=True)
class Floor:
    """The least time for some work, and what sets it."""

    ns: float
    # Which of the work's amounts takes that long.
    resource: Literal["compute", "memory", "link"]
    # "fp16 tensor (datasheet, dense)", "DRAM (datasheet)", "link, one way (datasheet)"
    ceiling: str
    # FLOP/s, or bytes/s.
    rate: float


def floor_of(work: ClaimedWork, rows: Sequence[DeviceSpec]) -> Floor | None:
    """The least time on the fastest of `rows`; None where the table lacks the rates."""
    known = (_roof_floor(work, rows), _link_floor(work, rows))
    return max(filter(None, known), key=lambda floor: floor.ns, default=None)


def compute_ns(work: ClaimedWork, rows: Sequence[DeviceSpec]) -> float | None:
    """The time of the FLOPs alone at the fastest row's peak, by which MFU is told."""
    compute = roof_time(work.flops, (), _best_roof(rows)).compute
    return None if compute is None else compute.ns


def _link_floor(work: ClaimedWork, rows: Sequence[DeviceSpec]) -> Floor | None:
    rates = [row.link_gb_per_s / 2 * 1e9 for row in rows if row.link_gb_per_s]
    if not work.bus_bytes or not rates:
        return None
    rate = max(rates)
    return Floor(work.bus_bytes / rate * 1e9, "link", "link, one way (datasheet)", rate)


def _roof_floor(work: ClaimedWork, rows: Sequence[DeviceSpec]) -> Floor | None:
    if not work.flops and not work.bytes_moved:
        return None
    traffic = Traffic(work.bytes_moved, work.bytes_moved)
    times = roof_time(work.flops, (traffic,), _best_roof(rows))
    if times.binding is None:
        return None
    resource: Literal["compute", "memory"] = (
        "compute" if times.binding is times.compute else "memory"
    )
    ceiling = times.binding.ceiling
    return Floor(times.binding.ns, resource, ceiling.label, ceiling.rate)


def _best_roof(rows: Sequence[DeviceSpec]) -> Roof:
    best: dict[tuple[object, ...], Ceiling] = {}
    for row in rows:
        for ceiling in datasheet_ceilings(row):
            key = (ceiling.kind, ceiling.unit, ceiling.precision, ceiling.level)
            if key not in best or best[key].rate < ceiling.rate:
                best[key] = ceiling
    return Roof(tuple(best.values()), "datasheet")
