"""Stragglers in words."""

from collections.abc import Sequence
from typing import Final

from gpuprof.roofline.durations import duration
from gpuprof.roofline.rank_figures import LateAt, LateCause, LateLaunches, Straggler

_NAMED_RANKS: Final = 8
# Of what a rank costs while it is profiled: where more is left without, that is not said.
_MOSTLY_LEFT: Final = 0.8
# Of the others' clock: below it the device is what is slow.
_SLOW_CLOCK: Final = 0.97


def ranks_text(ranks: Sequence[int]) -> str:
    """ "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2 and 61 more"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > _NAMED_RANKS:
        shown = ", ".join(map(str, ranks[:_NAMED_RANKS]))
        return f"ranks {shown} and {len(ranks) - _NAMED_RANKS} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def when_text(late: Straggler) -> str:
    """In which steps it is late: "in every step", "in every 3rd step", "in 2 of 8 steps"."""
    if late.pattern == "periodic" and late.every is not None:
        return f"in every {_ordinal(late.every)} step"
    if late.pattern == "moving":
        return f"in {len(late.steps)} of {late.of_steps} steps; in others another rank does"
    if len(late.steps) == late.of_steps:
        return "in every step"
    return f"in {len(late.steps)} of {late.of_steps} steps"


def late_text(late: Straggler) -> str:
    """Who waits for it, how long and when: "rank 3 makes ranks 0 and 1 wait 3 ms in every step"."""
    waiting = ranks_text(late.waiting) if len(late.waiting) <= _NAMED_RANKS else "the others"
    text = f"rank {late.rank} makes {waiting} wait {duration(late.late_ns)} {when_text(late)}"
    if late.at_most_ns is None or late.at_most_ns > _MOSTLY_LEFT * late.per_step_ns:
        return text
    return f"{text} while profiled, and {duration(late.at_most_ns)} a step at most without"


def cause_text(cause: LateCause, shapes: str = "") -> str:
    """What a late rank has more of; `shapes` are those of its operator for people."""
    what = f"{cause.what} {shapes}".rstrip()
    module = f" in {cause.module}" if cause.module else ""
    where = f" at {cause.place}{module}" if cause.place else module
    if cause.kind == "idle":
        usual = f", on others {duration(cause.usual_ns)}" if cause.usual_ns else ""
        return f"its device has no work for {duration(cause.nanoseconds)} in {what}{where}{usual}"
    if cause.kind == "more work" and cause.calls is not None and cause.usual_calls is not None:
        calls = f"{cause.calls} calls" if cause.calls != 1 else "1 call"
        return (
            f"{calls} of {what}{where} where others make {cause.usual_calls or 'none'}, "
            f"{duration(cause.longer_ns)} more"
        )
    return (
        f"{what}{where} takes {duration(cause.nanoseconds)}, on others {duration(cause.usual_ns)}"
    )


def at_text(at: LateAt) -> str:
    """ "most of it at all-reduce 1 of 11 in a step"."""
    return f"most of it at {at.collective}, collective {at.nth} of {at.of} in a step"


def clock_text(late: Straggler) -> str:
    """Its device's clock beside the others'; "" where NVML did not tell."""
    if late.sm_clock_mhz is None or late.usual_sm_clock_mhz is None:
        return ""
    slowed = f" ({', '.join(late.slowed_by)})" if late.slowed_by else ""
    own, usual = late.sm_clock_mhz, late.usual_sm_clock_mhz
    return f"its device runs at {own} MHz{slowed}, others at {usual} MHz"


def launches_text(late: LateLaunches) -> str:
    """That a rank comes late under the profiler, and what may be left of that without it."""
    return (
        f"rank {late.rank} is {duration(late.late_ns)} a step late with launches while it is "
        f"profiled: {left_text(late)}"
    )


def left_text(late: LateLaunches) -> str:
    """What of late launches may be left without the profiler."""
    if late.at_most_ns is None:
        return "without the profiler that may be nothing"
    return f"a step without the profiler has room for {duration(late.at_most_ns)} of that"


def has_slow_clock(late: Straggler) -> bool:
    """Whether its device runs at a clearly lower clock than those of the others."""
    own, usual = late.sm_clock_mhz, late.usual_sm_clock_mhz
    return own is not None and usual is not None and own < _SLOW_CLOCK * usual


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else endings.get(number % 10, 'th')}"
