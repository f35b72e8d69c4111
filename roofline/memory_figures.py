"""What memory a program used, and for what: parts of an `Analysis`.

Frozen structs; unknown is None. Bytes are those of the allocator, which rounds up what is asked
for (a CUDA block to 512 bytes). Times are nanoseconds since the timeline's start.
"""

from typing import Literal

import msgspec

# parameters: those of live models, and their buffers. gradients: of parameters. optimizer state:
# what live optimizers keep. activations: allocated outside the backward pass and kept by more than
# the operator that made them. backward: the same in the backward pass; gradients of parameters
# too where no live object told which those are. workspace: given back by the operator that took
# it, or within an optimizer's step. tensors: there before, and held by tensors of the program that
# belong to none of these. earlier: there before, holder unknown. other: allocated outside all
# operators.
MemoryKind = Literal[
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "backward",
    "workspace",
    "tensors",
    "earlier",
    "other",
]


class KindBytes(msgspec.Struct, frozen=True):
    """What one kind of memory holds."""

    kind: MemoryKind
    bytes: int


class MemoryHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Live memory of one kind that came from one place in the program."""

    kind: MemoryKind
    bytes: int
    # How many pieces; None where only their sum is known.
    blocks: int | None
    # The operator that allocated it, or what holds it; "" where neither is known.
    operator: str = ""
    module: str = ""
    # The innermost line outside torch, "file:line function"; "" where no stack was recorded.
    line: str = ""


class MemoryMoment(msgspec.Struct, frozen=True, kw_only=True):
    """What was allocated at one moment, by kind and by origin.

    Each adds up to `allocated_bytes`; both are empty where lost events keep them from it.
    """

    # On the capture's clock.
    time_ns: int
    # Which of the profiled steps, from 1; None outside them.
    step: int | None = None
    allocated_bytes: int
    reserved_bytes: int | None = None
    # Largest first.
    kinds: tuple[KindBytes, ...] = ()
    # The largest, and what the others hold together.
    holders: tuple[MemoryHolder, ...] = ()
    other_holders: int = 0
    other_holders_bytes: int = 0


class StepMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled step."""

    step: int
    peak_bytes: int
    # Still allocated when it ended.
    end_bytes: int


class MemoryTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """How much was allocated over time; of many events the least and the most of short spans."""

    # On the capture's clock.
    start_ns: int
    times_ns: tuple[int, ...]
    allocated_bytes: tuple[int, ...]
    # None where the source does not say.
    reserved_bytes: tuple[int | None, ...]
    # Where profiled steps begin and end.
    steps_ns: tuple[tuple[int, int], ...] = ()


class Fragmentation(msgspec.Struct, frozen=True, kw_only=True):
    """What an allocator held and did not give out, at one moment."""

    reserved_bytes: int
    allocated_bytes: int
    # Given back, and kept until other streams are done with it.
    pending_bytes: int
    largest_free_block_bytes: int
    # Free parts of segments in use: they go neither to the driver nor to a larger request.
    inactive_split_bytes: int

    @property
    def free_fraction(self) -> float:
        """The share of what is reserved that nothing uses."""
        if not self.reserved_bytes:
            return 0.0
        used = self.allocated_bytes + self.pending_bytes
        return (self.reserved_bytes - used) / self.reserved_bytes


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one device, or main memory as torch's allocator gives it out."""

    # None is main memory.
    device: int | None
    # What the device has.
    total_bytes: int | None = None
    # Of the whole run, from the allocator's own statistics.
    run_peak_allocated_bytes: int | None = None
    run_peak_reserved_bytes: int | None = None
    # Times that the allocator gave all free memory back to the driver and tried again.
    retries: int | None = None
    failures: int | None = None
    # True where it is not known what was allocated before the first event: bytes are then those
    # allocated since.
    since_first_event: bool = False
    peak: MemoryMoment | None = None
    # The most that was reserved at any event.
    peak_reserved_bytes: int | None = None
    steps: tuple[StepMemory, ...] = ()
    timeline: MemoryTimeline | None = None
    # When the profile ended or the snapshot was taken.
    fragmentation: Fragmentation | None = None


class OutOfMemory(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation that failed."""

    device: int | None
    asked_bytes: int
    # What the allocator may use of the device, and what of the device nobody used.
    limit_bytes: int | None = None
    free_bytes: int | None = None
    # Where the program asked, "file:line function"; "" where that is not known.
    line: str = ""
    # Whether the program ended with it.
    fatal: bool = False
    # How many failed in all.
    failures: int = 1
    # What was allocated then.
    live: MemoryMoment | None = None
    fragmentation: Fragmentation | None = None
    # What to do, in whole sentences; the likeliest first.
    advice: tuple[str, ...] = ()


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """All memory that one process was seen to use."""

    # Those whose events were recorded, devices before main memory.
    devices: tuple[DeviceMemory, ...] = ()
    # Calls into the driver that get, map or give back memory, and their time, of all profiled
    # steps together.
    driver_calls: int = 0
    driver_calls_ns: int = 0
    # The last one.
    out_of_memory: OutOfMemory | None = None
