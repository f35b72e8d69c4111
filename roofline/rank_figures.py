"""What the ranks of a job say together: a part of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds.
"""

import msgspec


class RankStep(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled step of one rank."""

    index: int
    length_ns: int
    # The device works, or the host keeps it from that as long as it would without the profiler.
    own_ns: int
    # The device has no work since its host launches too slowly, which the profiler makes worse.
    launch_ns: int
    # In collectives, for ranks that come later; None where that is not known of any.
    wait_ns: int | None = None


class RankFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of the job."""

    rank: int
    host: str | None = None
    device_name: str | None = None
    title: str = ""
    steps: tuple[RankStep, ...] = ()
    # Collectives that are known of all their ranks, and those of them to which it came last.
    collectives: int = 0
    came_last: int = 0


class RanksAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks of the job that the capture holds."""

    world_size: int
    # In order of their numbers.
    ranks: tuple[RankFigures, ...]
    # Ranks of the job that the capture does not hold.
    missing: tuple[int, ...] = ()
    # Collectives that all their ranks recorded, of all that were recorded by any.
    matched: int = 0
    collectives: int = 0
