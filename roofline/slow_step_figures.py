"""How long the slow steps of a run were and what differed in them: a part of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds, fractions are of 1.
"""

from typing import Literal

import msgspec

# timed: those without a profiler before the profiled ones. watched: every step after these, with
# `gpuprof run --watch`. profiled: where no others are known, which the profiler lengthens.
Population = Literal["timed", "watched", "profiled"]


class Percentile(msgspec.Struct, frozen=True):
    """A length that this fraction of the steps does not exceed."""

    fraction: float
    length_ns: int


class StepDifference(msgspec.Struct, frozen=True):
    """What a slow step had more of than an ordinary one.

    The differences of one step do not overlap, and add up to no more than it was longer by.
    """

    # "garbage collection", "data loader", "device clock", ...
    cause: str
    longer_ns: int
    # What else is known of it: the clocks, the kernel, the call.
    evidence: str = ""


class SlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """One of the slowest steps."""

    # Of watched steps since the watch began, of others as in the table of steps.
    index: int
    start_ns: int
    length_ns: int
    # Than the median; 0 or more.
    longer_ns: int
    differences: tuple[StepDifference, ...] = ()
    # As NVML sampled them in the step, or within a second of it.
    sm_clock_mhz: int | None = None
    power_watts: float | None = None
    slowed_by: tuple[str, ...] | None = None


class RunPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive steps of the run: how long they took, the device's clock and power meanwhile."""

    index: int
    start_ns: int
    steps: int
    mean_ns: int
    longest_ns: int
    sm_clock_mhz: int | None = None
    power_watts: float | None = None
    slowed_by: tuple[str, ...] | None = None


class CauseTotal(msgspec.Struct, frozen=True):
    """One cause over all outliers that were kept in full."""

    cause: str
    longer_ns: int
    # How many of them had it.
    steps: int
    # Those of which it is the largest part are multiples of so many steps apart; None where not.
    every: int | None = None


class SlowSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The lengths of many steps, and the longest of them."""

    population: Population
    # By what the lengths were measured, in words.
    clock: str
    # Lengths of watched steps are means of so many; `steps` counts steps all the same.
    steps_per_mark: int = 1
    steps: int
    mean_ns: int
    median_ns: int
    longest_ns: int
    # Only those that the number of steps allows: P99 takes a hundred.
    percentiles: tuple[Percentile, ...] = ()
    # Lengths above it are outliers: over the third quartile by three interquartile ranges, and
    # over the median by a twentieth; of fewer than eight steps over it by a fifth.
    limit_ns: int
    outliers: int = 0
    # By how much the outliers together are longer than the median.
    outliers_longer_ns: int = 0
    # The longest first.
    slowest: tuple[SlowStep, ...] = ()
    # Of those of `slowest` that are outliers, the largest first.
    causes: tuple[CauseTotal, ...] = ()
    time_line: tuple[RunPoint, ...] = ()
    # Of all these steps together, where they do the work of the profiled ones.
    mfu: float | None = None
    # The share of the steps' time that their marks took of the host.
    watching_fraction: float | None = None
