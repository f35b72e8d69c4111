"""What the host did in the profiled steps: parts of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds, summed over the profiled steps and
lengthened by the profiler where one ran, unless a field says otherwise.
"""

from typing import Literal

import msgspec

from gpuprof.collectors.manifest import Compilations

CallKind = Literal["operator", "runtime"]
# What most of the waiting for a loader's batches is.
# transform: whoever loads computes. reading: it waits, and reads from a storage device meanwhile.
# waiting: it waits for something else, such as a network, a lock or a sleep. core: it is ready to
# run and others have the cores. unknown: the system keeps no count.
LoaderCause = Literal["transform", "reading", "waiting", "core", "unknown"]


class HostCall(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one operator, or of one function of the runtime or driver, on all threads."""

    name: str
    kind: CallKind
    calls: int
    # What it calls included; of calls within another of the same name only the outer one.
    total_ns: int
    # Without the operators and runtime calls inside.
    self_ns: int


class LaunchQueue(msgspec.Struct, frozen=True, kw_only=True):
    """How many launches were made and not begun by the device, over the time of the steps.

    A replayed graph is one launch, which begins with its first kernel.
    """

    device: int
    # Weighted by time.
    median: int
    maximum: int
    # Of the time: nothing was launched that had not begun. What began last may still run.
    empty_fraction: float
    # From the launch call to the begin of its work, half of the launches at least so long.
    median_delay_ns: int


class CollectedGarbage(msgspec.Struct, frozen=True, kw_only=True):
    """Python's garbage collections."""

    # Mean of the timed steps, without the profiler; None where none was timed with a count.
    timed_step_ns: int | None = None
    # In the profiled steps: by generation, from the youngest, and together.
    collections: tuple[int, int, int] = (0, 0, 0)
    profiled_ns: int = 0


class LoaderWait(msgspec.Struct, frozen=True, kw_only=True):
    """Batches that the program asked DataLoaders of one kind for, and who worked for them."""

    # None where only a trace of torch's profiler tells: several.
    workers: int | None
    pinned: bool | None
    batches: int
    # The asking thread waited, or loaded itself where there are no workers.
    wait_ns: int
    cause: LoaderCause
    # How often the program began to go through one, and how long that took: workers are started
    # each time, unless they persist.
    starts: int = 0
    start_ns: int = 0
    # Of whoever loads: the asking thread while it waits, or all workers over `observed_ns`, which
    # is how long they were looked at, times their number. None where the system keeps no count.
    observed_ns: int | None = None
    # Batches that the workers made in that time.
    loaded: int | None = None
    cpu_ns: int | None = None
    run_delay_ns: int | None = None
    read_bytes: int | None = None
    storage_bytes: int | None = None


class HostFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The host's side of the profiled steps of one process."""

    # In which no thread was in any operator or runtime call: Python runs, or nobody. None where
    # neither is recorded.
    outside_ns: int | None = None
    # Those with most self time, and how much of it the others have.
    calls: tuple[HostCall, ...] = ()
    other_self_ns: int = 0
    # Launches of a step over its length, without the profiler where steps were timed. None where no
    # launch is recorded.
    launches_per_s: float | None = None
    queue: LaunchQueue | None = None
    garbage: CollectedGarbage | None = None
    loaders: tuple[LoaderWait, ...] = ()
    # In which torch.compile compiled; None where that is not known.
    compiling_ns: int | None = None
    # Of the whole run; None where nothing was compiled, or the source does not tell.
    compilations: Compilations | None = None
