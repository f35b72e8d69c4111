"""What a collective takes on these links as measured, by kind, size and number of ranks."""

import math
from itertools import pairwise

from gpuprof.collectors.link_calibration import CollectiveTimes, LinkCalibration


def find_times(
    calibration: LinkCalibration | None,
    collective: str,
    ranks: int,
    *,
    hosts: int = 1,
    backend: str = "",
) -> CollectiveTimes | None:
    """The measurement of `collective` among `ranks` ranks on `hosts`; None where there is none.

    With the algorithm that the library chooses itself; of any backend where none is given.
    """
    if calibration is None:
        return None
    for one in calibration.collectives:
        if (one.collective, one.ranks, one.hosts, one.algorithm) == (collective, ranks, hosts, ""):
            if backend in ("", one.backend):
                return one
    return None


def time_of(times: CollectiveTimes, message_bytes: int) -> float | None:
    """Nanoseconds of a message of that size, between the sizes that were measured.

    On a straight line between two sizes' logarithms. Below the smallest the smallest's time, of
    which latency is nearly all; above the largest at the largest's bandwidth. None without times.
    """
    if not times.times or message_bytes < 0:
        return None
    (smallest, smallest_ns), (largest, largest_ns) = times.times[0], times.times[-1]
    if message_bytes <= smallest:
        return smallest_ns
    if message_bytes >= largest:
        return largest_ns * message_bytes / largest
    for (low, low_ns), (high, high_ns) in pairwise(times.times):
        if low <= message_bytes <= high:
            share = math.log(message_bytes / low) / math.log(high / low)
            return math.exp((1 - share) * math.log(low_ns) + share * math.log(high_ns))
    return None
