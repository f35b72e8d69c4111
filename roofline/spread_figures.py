"""How long calls of one kind took, as an analysis holds it."""

import msgspec


class CallSpread(msgspec.Struct, frozen=True, kw_only=True):
    """Device time of single calls that do the same work.

    A call is one of the operator: where it launches a kernel several times, all of them.
    """

    calls: int
    shortest_ns: int
    lower_quartile_ns: int
    median_ns: int
    upper_quartile_ns: int
    longest_ns: int
