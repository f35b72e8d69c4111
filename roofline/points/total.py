"""FLOPs and bytes of several calls together."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from gpuprof.roofline.cost_models.cost import Cost, Flops, PeakTime
from gpuprof.roofline.machine.roof_time import Traffic


@dataclass(frozen=True)
class Total:
    """Counts of several calls together; None where one of them is unknown."""

    flops: tuple[Flops, ...] | None
    bytes_read: int | None
    bytes_written: int | None
    assumptions: tuple[str, ...] = ()
    # The same bytes by the calls that move them; None where nothing tells those.
    traffic: tuple[Traffic, ...] | None = None
    # Read plus written, where only that is known.
    undivided_bytes: int | None = None
    # What hardware counters tell in place of counts that are unknown.
    peak_times: tuple[PeakTime, ...] = ()

    @property
    def bytes_moved(self) -> int | None:
        """Bytes read plus bytes written."""
        if self.bytes_read is None or self.bytes_written is None:
            return self.undivided_bytes
        return self.bytes_read + self.bytes_written

    def of_calls(self, calls: int) -> "Total":
        """The same, moved by so many calls that are alike."""
        traffic = _traffic(self.bytes_read, self.bytes_written, self.undivided_bytes, calls)
        return self if traffic is None else replace(self, traffic=traffic)

    @property
    def all_traffic(self) -> tuple[Traffic, ...] | None:
        """What moves, as one piece where nothing tells the calls; None where it is unknown."""
        moved = self.bytes_moved
        if moved is None:
            return None
        return (Traffic(moved, moved),) if self.traffic is None else self.traffic


UNKNOWN = Total(None, None, None)


def _traffic(
    read: int | None, written: int | None, undivided: int | None, calls: int
) -> tuple[Traffic, ...] | None:
    """What `calls` calls move that are alike; None where that is not known."""
    if undivided is not None:
        # The larger of the two is half of it at least.
        read = undivided // 2
        written = undivided - read
    if read is None or written is None:
        return None
    return (Traffic.of_calls(read, written, calls),)


def sum_known(totals: Iterable[Total]) -> Total:
    """The sum of what is known, marked as a lower bound where something is not."""
    parts = list(totals)
    flops = [part.flops for part in parts if part.flops is not None]
    moved = [part for part in parts if part.bytes_moved is not None]
    partial = len(flops) < len(parts) or len(moved) < len(parts)
    divided = bool(moved) and all(part.undivided_bytes is None for part in moved)
    return Total(
        add_flops(one for several in flops for one in several) if flops else None,
        sum(part.bytes_read or 0 for part in moved) if divided else None,
        sum(part.bytes_written or 0 for part in moved) if divided else None,
        ("some device work has no cost model: counts are lower bounds",) if partial else (),
        tuple(one for part in parts for one in part.all_traffic or ()),
        sum(part.bytes_moved or 0 for part in moved) if moved and not divided else None,
    )


def times_calls(cost: Cost | None, calls: int) -> Total:
    """The counts of `calls` calls that cost `cost` each."""
    if cost is None:
        return UNKNOWN
    flops = (
        None
        if cost.flops is None
        else add_flops(Flops(part.kind, part.precision, part.count * calls) for part in cost.flops)
    )
    read = None if cost.bytes_read is None else cost.bytes_read * calls
    written = None if cost.bytes_written is None else cost.bytes_written * calls
    undivided = None if cost.undivided_bytes is None else cost.undivided_bytes * calls
    return Total(
        flops,
        read,
        written,
        cost.assumptions,
        _traffic(read, written, undivided, calls),
        undivided,
        tuple(msgspec.structs.replace(each, ns=each.ns * calls) for each in cost.peak_times),
    )


def add_flops(parts: Iterable[Flops]) -> tuple[Flops, ...]:
    """One entry for each kind and precision of `parts`."""
    counts: dict[tuple[str, str], int] = {}
    for part in parts:
        key = (part.kind, part.precision)
        counts[key] = counts.get(key, 0) + part.count
    return tuple(
        Flops("matmul" if kind == "matmul" else "vector", precision, count)
        for (kind, precision), count in sorted(counts.items())
    )
