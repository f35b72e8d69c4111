"""One counter of one launch: its total and its peak, from whichever submetrics were collected.

Section sets differ in what they collect of a counter: its sum, a rate, or a share of its peak.
Source: Nsight Compute, Kernel Profiling Guide, Metrics Structure.
"""

from collections.abc import Mapping
from typing import Final

DURATION: Final = "gpu__time_duration.sum"
_NANOSECONDS_PER_SECOND: Final = 1e9
# A share is printed with few digits: a peak worked out from less is not known well enough.
_SMALLEST_PERCENT: Final = 1.0


def total(counters: Mapping[str, float], counter: str) -> float | None:
    """Counts of the whole launch; None where nothing that was collected tells.

    `counters` are metric -> value in base units, `counter` is a metric without its submetric.
    """
    for name in (counter, _of_the_other_unit(counter)):
        if f"{name}.sum" in counters:
            return counters[f"{name}.sum"]
        for rate, per in (
            (counters.get(f"{name}.sum.per_cycle_elapsed"), elapsed_cycles(counters, name)),
            (counters.get(f"{name}.sum.per_second"), _seconds(counters)),
        ):
            if rate == 0:
                return 0.0
            if rate is not None and per is not None:
                return rate * per
    return None


def peak_per_second(counters: Mapping[str, float], counter: str, clock: str) -> float | None:
    """The most counts that the device can do in a second, at the clock that the launch ran at."""
    direct = counters.get(f"{counter}.sum.peak_sustained_elapsed.per_second")
    if direct is not None:
        return direct
    per_cycle = counters.get(f"{counter}.sum.peak_sustained")
    hertz = counters.get(f"{clock}.avg.per_second")
    if per_cycle is not None and hertz is not None:
        return per_cycle * hertz
    rate = counters.get(f"{counter}.sum.per_second")
    percent = counters.get(f"{counter}.sum.pct_of_peak_sustained_elapsed")
    if rate is None or percent is None or percent < _SMALLEST_PERCENT:
        return None
    return rate / percent * 100


def elapsed_cycles(counters: Mapping[str, float], counter: str) -> float | None:
    """Mean cycles of the unit that `counter` is of: a rate by its cycles is a mean over them."""
    unit = counter.split("__")[0]
    cycles = counters.get(f"{unit}__cycles_elapsed.avg")
    hertz, seconds = counters.get(f"{unit}__cycles_elapsed.avg.per_second"), _seconds(counters)
    if cycles is None and hertz is not None and seconds is not None:
        return hertz * seconds
    return cycles


def _seconds(counters: Mapping[str, float]) -> float | None:
    nanoseconds = counters.get(DURATION)
    return None if nanoseconds is None else nanoseconds / _NANOSECONDS_PER_SECOND


def _of_the_other_unit(counter: str) -> str:
    """The same counter of the other unit that has it: an SM's of its four parts, or theirs."""
    if counter.startswith("smsp__"):
        return "sm__" + counter.removeprefix("smsp__")
    return "smsp__" + counter.removeprefix("sm__") if counter.startswith("sm__") else counter
