"""One range that the program has opened and closed, as plain data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RecordedRange:
    """One closed range; times are Unix epoch nanoseconds, `thread` the system's thread id."""

    name: str
    domain: str
    thread: int
    start_ns: int
    end_ns: int
    # It was ended by its handle, on whichever thread, and holds what all threads do meanwhile.
    across_threads: bool = False
    flops: int | None = None
    bytes: int | None = None
