"""What collectives do over all ranks: a part of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds, bandwidths bytes/s.
"""

import msgspec

from gpuprof.roofline.machine.latency_fit import LatencyFit


class CollectiveGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind, number of ranks and message in the profiled steps."""

    # As roofline/collectives.toml names it; "" where unknown.
    collective: str
    group_size: int
    # That the ranks of its groups are on; None where not all are named, or groups differ.
    hosts: int | None = None
    message_bytes: int | None = None
    # Of all its groups.
    calls: int
    # Of one call: the shortest of its times over the ranks, the median of all calls and the
    # quartiles. None where ranks do different things.
    transfer_ns: int | None = None
    transfer_quartiles_ns: tuple[int, int] | None = None
    # The message over transfer_ns, and times its factor (nccl-tests, doc/PERFORMANCE.md).
    bytes_per_s: float | None = None
    bus_bytes_per_s: float | None = None
    # Of one call on one rank, means over both: all of its time, what it waits for ranks that come
    # later, and what of its time nothing hides; the rest is overlapped.
    duration_ns: int
    waiting_ns: int | None = None
    exposed_ns: int
    # What one of this kind, size and number of ranks takes on these links, measured on this
    # machine; of transfer_ns.
    measured_ns: int | None = None
    measured_fraction: float | None = None
    # What the log of NCCL or the names of its kernels tell for certain, "tree LL128", "two-shot";
    # and what the names say that they are compiled for, "ring LL", which is not what ran.
    algorithm: str = ""
    compiled_for: str = ""

    @property
    def overlapped_ns(self) -> int:
        """What computing or copies hide of one call on one rank, the mean."""
        return self.duration_ns - self.exposed_ns


class CollectiveLine(msgspec.Struct, frozen=True, kw_only=True):
    """alpha + beta x bytes through the transfers of one collective, or why there is no line."""

    collective: str
    # Of a call: its number of ranks. Of a hop: all numbers together.
    group_sizes: tuple[int, ...]
    # "": of a whole call; "ring", "tree": of one hop of it, if it was one.
    algorithm: str = ""
    fit: LatencyFit | None = None
    reason: str = ""


class LinkFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All collectives that all their ranks recorded."""

    steps: int
    # Those that take most time first; at most 200, and how many more there are.
    groups: tuple[CollectiveGroup, ...]
    left_out: int = 0
    lines: tuple[CollectiveLine, ...] = ()
