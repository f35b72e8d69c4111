"""One timed step, as plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepTime:
    """One complete step. Times on the Unix clock, durations from clocks that cannot jump."""

    phase: str
    start_ns: int
    end_ns: int
    host_ns: int
    device_ns: int | None
    tokens: int | None
    # When the device began the step, which a host that runs ahead has marked long before.
    device_start_ns: int | None = None
    # While the stepping thread was ready and another had its core; None where nobody counts.
    run_delay_ns: int | None = None
    # While Python collected garbage; None where nobody counts.
    garbage_collection_ns: int | None = None
    # In `next` of a DataLoader; None where nobody counts.
    loader_ns: int | None = None
