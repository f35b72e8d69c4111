"""The least time that the ceilings allow for some work, and which ceiling binds.

Memory has levels: what moves is compared with the fastest level that holds the data of one call.

Tensor units, vector units and memory work at the same time, so each resource has its own time and
the largest binds (Williams, Waterman, Patterson 2009). Precisions on one unit follow each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gpuprof.roofline.cost_models.cost import Flops, PeakTime
from gpuprof.roofline.machine.ceilings import Ceiling, Roof, Unit


@dataclass(frozen=True)
class Traffic:
    """Bytes that calls of one kind read and write in all, and the data that one of them needs."""

    moved_bytes: int
    # At least: an operand that is both read and written is one piece of data.
    data_bytes: int

    @classmethod
    def of_calls(cls, bytes_read: int, bytes_written: int, calls: int) -> "Traffic":
        """That of `calls` calls alike, which read and write so much in all."""
        return cls(bytes_read + bytes_written, max(bytes_read, bytes_written) // max(calls, 1))


@dataclass(frozen=True)
class ResourceTime:
    """Nanoseconds that one resource needs at its ceiling."""

    ns: float
    ceiling: Ceiling


@dataclass(frozen=True)
class RoofTime:
    """Per-resource times of one piece of work; None where there is none, or it is unknown."""

    compute: ResourceTime | None
    memory: ResourceTime | None
    # Whether both counts and their ceilings are known, so that the larger time is the roof.
    complete: bool

    # Asked for several times for each kind of work.
    @cached_property
    def binding(self) -> ResourceTime | None:
        """The resource that needs longest, where that can be told."""
        compute, memory = self.compute, self.memory
        if not self.complete:
            return None
        if compute is None or memory is None:
            return memory if compute is None else compute
        return memory if memory.ns > compute.ns else compute


def roof_time(
    flops: Sequence[Flops] | None, traffic: Sequence[Traffic] | None, roof: Roof | None
) -> RoofTime:
    """Times of `flops` and `traffic` under `roof`; None is unknown.

    A matmul in a precision without a ceiling makes the roof unknown. Vector work without one is
    left out: it never binds where a matmul does, and elementwise work is bound by memory.
    """
    if roof is None:
        return RoofTime(None, None, complete=False)
    memory = _memory_time(traffic, roof)
    if flops is None:
        return RoofTime(None, memory, complete=False)
    ceilings = [roof.compute_rate(part.kind, part.precision) for part in flops]
    without_ceiling = None in ceilings and any(
        part.kind == "matmul" and ceiling is None
        for part, ceiling in zip(flops, ceilings, strict=True)
    )
    complete = memory is not None and not without_ceiling
    return RoofTime(_compute_time(flops, ceilings), memory, complete)


def at_peaks(times: Sequence[PeakTime]) -> RoofTime:
    """The times that hardware counters tell, each with the peak that it is of."""
    found = {
        each.resource: ResourceTime(
            each.ns,
            # In a second all of itself.
            Ceiling(
                kind=each.resource,
                rate=1.0,
                source="counters",
                reference="Nsight Compute: Speed of Light",
                level=each.name,
            ),
        )
        for each in times
    }
    return RoofTime(found.get("compute"), found.get("memory"), complete=True)


def _compute_time(
    flops: Sequence[Flops], ceilings: Sequence[Ceiling | None]
) -> ResourceTime | None:
    """Of `flops`, each with its ceiling."""
    ns_of: dict[Unit, float] = {}
    slowest: dict[Unit, tuple[float, Ceiling]] = {}
    for part, ceiling in zip(flops, ceilings, strict=True):
        if ceiling is None:
            continue
        unit: Unit = ceiling.unit or "vector"
        ns = part.count / ceiling.rate * 1e9
        ns_of[unit] = ns_of.get(unit, 0.0) + ns
        if unit not in slowest or ns > slowest[unit][0]:
            slowest[unit] = (ns, ceiling)
    if not ns_of:
        return None
    busiest = max(ns_of, key=lambda name: ns_of[name])
    return ResourceTime(ns_of[busiest], slowest[busiest][1])


def _memory_time(traffic: Sequence[Traffic] | None, roof: Roof) -> ResourceTime | None:
    slowest = roof.memory_rate()
    if traffic is None or slowest is None:
        return None
    total_ns, largest_ns = 0.0, 0.0
    for part in traffic:
        ceiling = roof.memory_rate_of(part.data_bytes) or slowest
        ns = part.moved_bytes / ceiling.rate * 1e9
        total_ns += ns
        if ns > largest_ns:
            slowest, largest_ns = ceiling, ns
    return ResourceTime(total_ns, slowest)
