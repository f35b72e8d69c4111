"""What functions of a user take by size: the structs behind the table, the page and the JSON.

Times are integer nanoseconds; unknown is None.
"""

from typing import Literal

import msgspec

from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.roofline.bench.results import Method
from gpuprof.roofline.machine.ceilings import Source

# Who says what a call costs: who called the benchmark, or the cost models of its operators.
CostSource = Literal["given", "operators"]


class CallCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one call costs; None is unknown, and `reason` says why."""

    flops: int | None = None
    flops_from: CostSource | None = None
    # Read and written.
    bytes_moved: int | None = None
    bytes_from: CostSource | None = None
    reason: str = ""
    # The time of its operators if each ran at its roof, and the ceilings that those are of.
    roof_ns: int | None = None
    roof_source: Source | None = None


class SizedTime(msgspec.Struct, frozen=True, kw_only=True):
    """One function at one size. With `error` set nothing was timed."""

    function: str
    # As it was given, for people, and as a number where it is one.
    size: str
    number: float | None
    median_ns: int | None = None
    # The interval of the median.
    lower_ns: int | None = None
    upper_ns: int | None = None
    # The interquartile range over the median.
    relative_spread: float | None = None
    # False where the budget ran out before the interval was narrow enough.
    precise: bool = False
    samples_ns: tuple[int, ...] = ()
    # What the host needed to start a call, the median, where the device's clock timed it.
    host_median_ns: int | None = None
    # For how long the device was held before each call.
    head_start_ns: int = 0
    cost: CallCost = CallCost()
    sm_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    error: str | None = None

    @property
    def flops_per_s(self) -> float | None:
        """FLOP/s by the median; None where either is unknown."""
        return self._rate(self.cost.flops)

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes/s by the median; None where either is unknown."""
        return self._rate(self.cost.bytes_moved)

    @property
    def roof_fraction(self) -> float | None:
        """The time at the roof over the median; None where either is unknown."""
        if self.cost.roof_ns is None or not self.median_ns:
            return None
        return self.cost.roof_ns / self.median_ns

    @property
    def host_bound(self) -> bool:
        """Whether the device may have waited for the host inside the timed calls."""
        if self.median_ns is None or self.host_median_ns is None:
            return False
        return self.host_median_ns > self.median_ns + self.head_start_ns

    def _rate(self, amount: int | None) -> float | None:
        return amount / self.median_ns * 1e9 if amount is not None and self.median_ns else None


class SizesReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole benchmark of functions, as its JSON file holds it."""

    tool_version: str
    created_ns: int
    title: str
    device: Device
    fingerprint: Fingerprint
    method: Method
    # In their order; the others are compared with the first.
    functions: tuple[str, ...]
    # By size, then by function, as they were given.
    times: tuple[SizedTime, ...]
    warnings: tuple[str, ...] = ()

    def of(self, function: str) -> tuple[SizedTime, ...]:
        """The times of one function, by size."""
        return tuple(one for one in self.times if one.function == function)
