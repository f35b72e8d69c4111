"""What the ranks of a job say together: a part of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds.
"""

from typing import Literal

import msgspec

# persistent: late in nearly all steps. periodic: in steps that are equally far apart. moving: in
# some, and in others another rank is. some steps: none of these.
LatePattern = Literal["persistent", "periodic", "moving", "some steps"]
# more work: calls that the other ranks do not make, or fewer of. slower work: the same calls. idle:
# the device has no work.
LateCauseKind = Literal["more work", "slower work", "idle"]
DisagreementAbout = Literal[
    "steps", "device", "versions", "environment", "collectives", "shapes", "loss scale"
]


class RankStep(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled step of one rank."""

    index: int
    length_ns: int
    # The device works, or the host keeps it from that as long as it would without the profiler.
    own_ns: int
    # The device has no work since its host launches too slowly, which the profiler makes worse.
    launch_ns: int
    # In collectives, for ranks that come later; None where that is not known of any.
    wait_ns: int | None = None


class RankFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of the job."""

    rank: int
    host: str | None = None
    device_name: str | None = None
    title: str = ""
    steps: tuple[RankStep, ...] = ()
    # By how much it comes to them later than the median of their ranks, in the median of all; below
    # 0 it comes earlier. None without a common clock.
    skew_ns: int | None = None
    # Collectives that are known of all their ranks, and those of them to which it came last.
    collectives: int = 0
    came_last: int = 0


class RankClock(msgspec.Struct, frozen=True, kw_only=True):
    """How the clock of one rank stands against that of the reference."""

    rank: int
    # Its time minus the reference's, at `middle_ns` on its own clock.
    offset_ns: int
    # What that grows by in a second, in ns; 0 where the ends show none.
    drift: float
    middle_ns: int
    # 95 of 100 of its ends lie within this of the others' once the clocks are aligned.
    residual_ns: int
    ends: int


class ClockAlignment(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks whose clocks could be aligned on the ends of shared collectives."""

    reference: int | None = None
    clocks: tuple[RankClock, ...] = ()
    # As of a clock, of all of them.
    residual_ns: int | None = None
    # Ranks without a common clock, and why.
    unaligned: tuple[int, ...] = ()
    reason: str = ""


class LateCause(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a late rank has more of than the median of the others, in its late steps."""

    kind: LateCauseKind
    # An operator or kernel, or what the host did.
    what: str
    # As the profiler recorded them; "" where it did not, and of idle time.
    input_dims: str = ""
    input_types: str = ""
    module: str = ""
    # "train.py:42"; "" where the capture has no lines.
    place: str = ""
    # In the median late step, of this rank and of the median other; None of idle time.
    calls: int | None = None
    usual_calls: int | None = None
    nanoseconds: int
    usual_ns: int

    @property
    def longer_ns(self) -> int:
        """What it has more of."""
        return self.nanoseconds - self.usual_ns


class LateAt(msgspec.Struct, frozen=True, kw_only=True):
    """The collective in which most of the others' waiting for a late rank lies."""

    collective: str
    message_bytes: int | None
    # It is the nth of so many of its group in a step, from 1.
    nth: int
    of: int
    # In one late step, by the median of the others.
    waited_ns: int


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that makes the others wait, for a reason that is there without the profiler too."""

    rank: int
    pattern: LatePattern
    # Of a periodic one: every so many steps.
    every: int | None = None
    # Those in which it is late, of so many.
    steps: tuple[int, ...]
    of_steps: int
    # In the mean of these, and in the mean of all.
    late_ns: int
    per_step_ns: int
    # In the mean of all, what it is later than the next rank: without it the others would wait for
    # that one.
    beyond_next_ns: int
    # Who waits for it.
    waiting: tuple[int, ...]
    # What of per_step_ns a step without the profiler has room for at most, in the median of those
    # who wait: their hosts run ahead there, which hides a pause. None where no step was timed.
    at_most_ns: int | None = None
    # What the mean profiled step takes now, and would without it.
    step_ns: int
    step_without_ns: int
    at: LateAt | None = None
    # The largest first.
    causes: tuple[LateCause, ...] = ()
    # Of its device in these steps, and the median of the others'; None where NVML did not tell.
    sm_clock_mhz: int | None = None
    usual_sm_clock_mhz: int | None = None
    slowed_by: tuple[str, ...] | None = None

    @property
    def costs_at_most_ns(self) -> int:
        """What it costs a step at most, as far as that is known."""
        return self.per_step_ns if self.at_most_ns is None else self.at_most_ns


class LateLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that the others wait for since its host launches late while it is profiled."""

    rank: int
    # In the mean of the profiled steps.
    late_ns: int
    # What of it a step without the profiler has room for at most; None where none was timed.
    at_most_ns: int | None = None


class RankDisagreement(msgspec.Struct, frozen=True, kw_only=True):
    """Something that should be alike on all ranks and is not."""

    about: DisagreementAbout
    # Who differs, from whom, and how.
    sentence: str
    # Those that differ from most.
    ranks: tuple[int, ...]


class RanksAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks of the job that the capture holds."""

    world_size: int
    # In order of their numbers.
    ranks: tuple[RankFigures, ...]
    # Ranks of the job that the capture does not hold.
    missing: tuple[int, ...] = ()
    # Collectives that all their ranks recorded, of all that were recorded by any.
    matched: int = 0
    collectives: int = 0
    # Whether there are steps or ranks enough to say that none is a straggler.
    stragglers_told: bool = False
    # The costliest first.
    stragglers: tuple[Straggler, ...] = ()
    late_launches: tuple[LateLaunches, ...] = ()
    # None where no collective is known of several ranks.
    clocks: ClockAlignment | None = None
    disagreements: tuple[RankDisagreement, ...] = ()
