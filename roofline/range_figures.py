"""What is known of the program's ranges as such: how long they were open and what ran in them."""

import msgspec


class RanInRange(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one operator in all passes of a range."""

    name: str
    calls: int
    # Of its device work; None where the range holds no device work.
    device_ns: int | None = None
    # On the range's own thread, what it calls included; None where it holds device work.
    host_ns: int | None = None


class RangeTime(msgspec.Struct, frozen=True, kw_only=True):
    """All passes through the ranges of one name and domain, within the profiled steps.

    Passes that begin before a step or end after it count with the part that lies in one.
    """

    name: str
    domain: str
    passes: int
    # In which one was open: of each thread once, however they are nested.
    wall_ns: int
    # Of the passes, what lies in no other range of their thread that is nested in them.
    own_ns: int
    # The range directly around every pass; "" where there is none, or not always the same.
    parent: str = ""
    # A start/end pair, which holds the work of all threads.
    across_threads: bool = False
    # Durations of the device work launched in it, each piece once, and how many pieces those are.
    # None where launches of the steps have no device work recorded.
    device_ns: int | None = None
    pieces: int | None = None
    # Those that took most of it: of the device, or where it holds no device work of its thread.
    ran: tuple[RanInRange, ...] = ()
