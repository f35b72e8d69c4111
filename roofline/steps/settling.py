"""Whether timed steps stand for the program: clocks fall to a power limit, caches fill."""

from collections.abc import Sequence
from statistics import median

from gpuprof.collectors.manifest import LaterSteps
from gpuprof.roofline.durations import duration
from gpuprof.roofline.rank_test import rank_test
from gpuprof.roofline.step_figures import StepTimes

# Steps before which half are compared with the other half; with more, the first quarter with the
# rest, since what settles does so early.
_FEW = 20
_FEWEST = 10
# Smaller changes matter to nobody who reads one median.
_SHARE = 0.03
_SURE = 0.01
# Later steps: blocks that a median is of, the fewest steps that say something of the program, and
# the change that is worth a warning.
_BLOCKS = 16
_ENOUGH_LATER = 10
_LATER_SHARE = 0.05


def unsettled(samples_ns: Sequence[int]) -> str | None:
    """A sentence where the first timed steps were of another length than the others, else None.

    Where the medians differ by over 3 %, Mann and Whitney's rank test must find so clear a
    difference less than once in a hundred runs of steps that do not change. At least ten steps.
    """
    count = len(samples_ns)
    if count < _FEWEST:
        return None
    split = count // 2 if count < _FEW else count // 4
    first, rest = samples_ns[:split], samples_ns[split:]
    change = median(rest) / median(first) - 1 if median(first) else 0.0
    if abs(change) < _SHARE:
        return None
    if rank_test(first, rest) >= _SURE:
        return None
    return (
        f"the first {split} of {count} timed steps took {duration(median(first), 4)}, the others "
        f"{duration(median(rest), 4)} ({change:+.1%}): the device's clock, a cache or the program "
        "was still settling; more warm-up steps keep that out of the step time"
    )


def later_median_ns(later: LaterSteps) -> int:
    """The median step of `later`, over blocks of a sixteenth of all of them or more.

    By the host's clock a block must be long for the device to have kept up but for its queue.
    """
    together = max(1, len(later.blocks_ns) // _BLOCKS)
    blocks = [
        sum(later.blocks_ns[start : start + together])
        for start in range(0, len(later.blocks_ns) - together + 1, together)
    ]
    return round(median(blocks) / (later.block_steps * together))


def unlike_later_steps(times: StepTimes) -> str | None:
    """A sentence where the steps after the profiled ones took clearly another time, else None."""
    timed_ns = times.median_ns
    if not times.timed or not timed_ns or not times.later_median_ns:
        return None
    if times.later < _ENOUGH_LATER:
        return None
    change = times.later_median_ns / timed_ns - 1
    spread = times.relative_spread or 0.0
    if abs(change) <= max(_LATER_SHARE, spread):
        return None
    return (
        f"{times.later} steps after the profiled ones took {duration(times.later_median_ns, 4)} "
        f"each, the {times.timed} timed ones {duration(timed_ns, 4)} ({change:+.1%} later): the "
        "timed ones came too early to stand for the program; --warmup and --timed move and widen "
        "them"
    )
