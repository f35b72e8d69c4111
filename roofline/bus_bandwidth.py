"""Bus bandwidth of collectives, by the definitions of nccl-tests (doc/PERFORMANCE.md).

Bandwidth is message bytes over time; times this factor it is what each rank's link carried, which
can be compared with the link's rate in one direction whatever the number of ranks. The message is
the whole buffer: all that a rank gathers, or that it has before it scatters.
"""

from typing import Literal, get_args

CollectiveName = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"]
COLLECTIVES: tuple[CollectiveName, ...] = get_args(CollectiveName)


def bus_factor(collective: CollectiveName, ranks: int) -> float:
    """Bytes over each rank's link for each byte of the message; 0 for one rank.

    >>> bus_factor("all-reduce", 8), bus_factor("all-gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    if ranks < 2:
        return 0.0
    if collective == "broadcast":
        return 1.0
    share = (ranks - 1) / ranks
    return 2 * share if collective == "all-reduce" else share
