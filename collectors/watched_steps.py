"""What `gpuprof run --watch` keeps of every step after the profiled ones, in bounded memory.

Structs are part of `rank=R/process.json`. Times are integer nanoseconds; unknown is None.
"""

import msgspec


class WatchedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step with all that was read at its two ends, by the thread that makes the steps.

    Where several steps share a mark it is the mean of them, and `index` the first one's.
    """

    # Steps before it since the watch began.
    index: int
    # On the Unix clock, by the host's mark.
    start_ns: int
    host_ns: int
    # Between CUDA events at its ends, and when the device reached the first; None without a GPU.
    device_ns: int | None = None
    device_start_ns: int | None = None
    # Of host_ns: what the thread ran, and what it was ready while another had its core. The rest
    # it was blocked: in a lock, in a read of a file, asleep.
    processor_ns: int | None = None
    run_delay_ns: int | None = None
    # Of host_ns: while Python collected garbage, on whichever thread, and within `next` of torch's
    # data loaders.
    garbage_collection_ns: int | None = None
    loader_ns: int | None = None


class StepBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive marked steps: one point of the time line."""

    # Of its first step.
    index: int
    # When the host marked its beginning, and when the device reached it.
    start_ns: int
    device_start_ns: int | None = None
    marked: int
    total_ns: int
    longest_ns: int


class WatchedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Every step of a run after the profiled ones.

    Lengths are between CUDA events where `on_device`, else by the host's clock.
    """

    on_device: bool
    # How many steps share a mark, so that marks cost less than a hundredth of the steps. Each
    # length below is then the mean of so many.
    steps_per_mark: int
    # How many lengths there are, their sum, and of how many steps the device's length is unknown.
    marked: int
    total_ns: int
    unknown: int = 0
    # Lengths in ascending order, each with how many steps were as long within `accuracy`.
    histogram: tuple[tuple[int, int], ...]
    accuracy: float
    # The longest of all, the longest first.
    slowest: tuple[WatchedStep, ...]
    # A uniform sample of all, in the order of the run.
    sample: tuple[WatchedStep, ...]
    time_line: tuple[StepBlock, ...]
    # The mean time that the thread ran for a mark.
    mark_ns: int
