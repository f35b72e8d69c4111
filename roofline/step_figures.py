"""What a step took, and where its time went: parts of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds, fractions are of 1.
"""

from typing import Final, Literal

import msgspec

from gpuprof.roofline.classes import OUTSIDE, ClassName, bottleneck_class

DEVICE_CLOCK: Final = "CUDA events"
# A device's time without work, whatever the cause.
WAITING_FOR_THE_HOST: Final = "waiting for the host"
# The profiler makes a step 2.35 times as long at most (steps/waiting.py), and following a program's
# lines may add as much again.
_ANOTHER_STEP: Final = 5

# What a step's length is.
# timed: of steps that ran without a profiler.
# device period: from the end of one profiled step's device work to the end of the next one's.
# host range: between the host's marks of a profiled step.
# whole trace: nothing marks steps; from the first to the last device work, taken as one step.
StepDefinition = Literal["timed", "device period", "host range", "whole trace"]


class StepContent(msgspec.Struct, frozen=True, kw_only=True):
    """What the profiled steps of a training consist of: the least and the most in one step."""

    backward_passes: tuple[int, int]
    optimizer_steps: tuple[int, int]
    # Whether each step holds several backward passes, all through the same parameters: the passes
    # are micro-batches, whose gradients are added up.
    accumulates: bool


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long steps took. The timed ones ran with no profiler attached."""

    # How the steps were found, for people: "optimizer steps (AdamW)".
    found_by: str
    # None where no backward pass was profiled.
    content: StepContent | None = None
    warmup: int
    timed: int
    profiled: int
    # `DEVICE_CLOCK` or "host clock"; with "under the profiler" where no step was timed.
    clock: str
    # What the lengths below are; None where there are none.
    definition: StepDefinition | None = None
    # None where there was no complete step.
    median_ns: int | None = None
    minimum_ns: int | None = None
    maximum_ns: int | None = None
    # The interquartile range over the median.
    relative_spread: float | None = None
    host_median_ns: int | None = None
    samples_ns: tuple[int, ...] = ()
    profiled_median_ns: int | None = None
    profiled_mean_ns: int | None = None
    # Why the profiled steps did other work than the timed ones; "" where nothing says so.
    unequal: str = ""
    # Steps after the profiled ones, unwatched but for a mark each: how many, and their median.
    later: int = 0
    later_median_ns: int | None = None
    later_clock: str = ""
    # Profiled over unprofiled step time, minus 1: what the profiler added.
    profiler_stretch: float | None = None
    launches_per_step: float | None = None
    tokens_per_s: float | None = None
    # Of the timed and of the profiled steps: the share for which the thread that makes them waited
    # for a core that other programs had. None where the system does not count that.
    waiting_fraction: float | None = None
    profiled_waiting_fraction: float | None = None

    @property
    def length_ns(self) -> int | None:
        """A step's length by `definition`.

        The median of timed steps. Of profiled ones the mean, as their work is counted together.
        """
        return self.median_ns if self.timed else self.profiled_mean_ns


class SplitPart(msgspec.Struct, frozen=True):
    """The part of a step's time that one bottleneck class takes."""

    kind: ClassName
    nanoseconds: int
    # What is left of it for certain in a step without the profiler; None where that is all of it.
    least_ns: int | None = None

    @property
    def certain_ns(self) -> int:
        """What of it is there without the profiler, too."""
        return self.nanoseconds if self.least_ns is None else self.least_ns


class StepSplit(msgspec.Struct, frozen=True, kw_only=True):
    """One step's time, split without overlap or remainder: the parts add up to `step_ns`.

    Raises `ValueError` where they do not, or where a part's class is not in the table.
    """

    step_ns: int
    # "timed": device work from the profiled steps inside the unprofiled step time. Else all is from
    # profiled steps.
    basis: StepDefinition
    # In the order of `gpuprof.roofline.classes`.
    parts: tuple[SplitPart, ...]
    # Of the device's busy time, what is longer than the step and therefore in no part.
    clipped_ns: int = 0
    # Of the parts with device work, what a timed step took longer for than a profiled one.
    slower_ns: int = 0

    def __post_init__(self) -> None:
        for part in self.parts:
            bottleneck_class(part.kind)
        total_ns = sum(part.nanoseconds for part in self.parts)
        if total_ns != self.step_ns:
            raise ValueError(f"the parts add up to {total_ns} ns of a step of {self.step_ns} ns")

    def nanoseconds(self, kind: ClassName) -> int:
        """The time of one class; 0 where the step has no such part."""
        return sum(part.nanoseconds for part in self.parts if part.kind == kind)

    @property
    def idle_ns(self) -> int:
        """Time without device work."""
        return sum(part.nanoseconds for part in self.idle_parts)

    @property
    def busy_ns(self) -> int:
        """Time with any device work."""
        return self.step_ns - self.idle_ns

    @property
    def idle_name(self) -> str:
        """The time without device work as a whole, in words."""
        on_cpu = any(part.kind == OUTSIDE for part in self.parts)
        return bottleneck_class(OUTSIDE).part if on_cpu else WAITING_FOR_THE_HOST

    @property
    def whole(self) -> str:
        """What shares of `step_ns` are shares of, in words."""
        return {"timed": "the step", "whole trace": "the trace"}.get(self.basis, "a profiled step")

    @property
    def idle_parts(self) -> tuple[SplitPart, ...]:
        """The parts without device work."""
        return tuple(part for part in self.parts if bottleneck_class(part.kind).idle)


class ExposedCopies(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one kind over a link, as far as nothing hides them."""

    # "host to device", "device to host", "device to device", "host to host"; "" where unknown.
    direction: str
    # "pageable" or "pinned"; "" where unknown.
    host_memory: str = ""
    exposed_ns: int


class Exposed(msgspec.Struct, frozen=True, kw_only=True):
    """The busy time of one device in one profiled step, split without overlap: what hides what."""

    # As the trace numbers it; None on a CPU.
    device: int | None = None
    # In which work ran that is neither communication nor a copy over a link.
    computing_ns: int
    # Communication that nothing else hides.
    communication_ns: int
    # Of it, what is known to wait for other ranks; None where the capture does not tell.
    rank_waits_ns: int | None = None
    # Of that, in calls that follow others directly: the price of so many calls.
    call_waits_ns: int | None = None
    # Copies to or from the host or another device that no computing hides.
    copies_ns: int
    # They add up to copies_ns.
    copies: tuple[ExposedCopies, ...] = ()
    # Without work on this device while another one of the process works. Not busy time.
    other_devices_ns: int = 0

    @property
    def busy_ns(self) -> int:
        """Time with any device work."""
        return self.computing_ns + self.communication_ns + self.copies_ns

    @property
    def call_share_of_waits(self) -> float:
        """The share of its waiting for other ranks that is the price of calls."""
        return (self.call_waits_ns or 0) / self.rank_waits_ns if self.rank_waits_ns else 0.0

    @property
    def needed_ns(self) -> int:
        """The same without waiting for other ranks, of which any step may have more or less."""
        return self.busy_ns - (self.rank_waits_ns or 0)


def has_no_room_to_wait(times: StepTimes, use: Exposed | None) -> bool:
    """Whether a GPU works in a profiled step for as long as a timed one takes.

    Then the profiler made what waiting there is, or the profiled steps did other work: of waiting
    in a timed step nothing is known but that there is no room for it.
    """
    if use is None or use.device is None or not times.timed or times.median_ns is None:
        return False
    return use.busy_ns >= times.median_ns


def is_another_step(split: StepSplit, times: StepTimes) -> bool:
    """Whether what was profiled tells nothing of the timed steps: a first step that compiles."""
    # Against the longest: with batches that are fetched ahead the median may have waited for none.
    timed_ns = times.maximum_ns or times.median_ns if times.timed else None
    return timed_ns is not None and split.step_ns > _ANOTHER_STEP * timed_ns
