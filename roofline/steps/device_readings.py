"""NVML's samples beside work: clock and power at some time, and what lowered the clock."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuprof.collectors.live.nvml.slowdowns import slowdown_reasons

# After the profiled steps a sample is taken each second: one of them is as near as this.
_NEAR_NS: Final = 600_000_000


@dataclass(frozen=True)
class DeviceReading:
    """What NVML said of the device at some time; None where it did not."""

    sm_clock_mhz: int | None = None
    # By NVML an average, on recent devices of about the last second.
    power_watts: float | None = None
    slowed_by: tuple[str, ...] | None = None


@dataclass(frozen=True)
class DeviceReadings:
    """The samples of one device in order of time."""

    time_ns: NDArray[np.int64]
    # NaN and -1 where NVML did not answer.
    sm_clock_mhz: NDArray[np.float64]
    power_watts: NDArray[np.float64]
    reasons: NDArray[np.int64]

    def within(self, start_ns: int, end_ns: int) -> DeviceReading:
        """Medians and all slow-downs of the samples in a time, else of the one nearest to it.

        Nothing where none is within about half a second.
        """
        first, last = np.searchsorted(self.time_ns, (start_ns, end_ns))
        if first == last:
            return self._nearest((start_ns + end_ns) // 2, int(first))
        return self.of(slice(int(first), int(last)))

    def median_clock_mhz(self, start_ns: int, end_ns: int) -> int | None:
        """The median over the samples in a time."""
        first, last = np.searchsorted(self.time_ns, (start_ns, end_ns))
        return self.of(slice(int(first), int(last))).sm_clock_mhz

    def of(self, rows: slice) -> DeviceReading:
        """Medians and all slow-downs of some samples."""
        clock, power = (_median(column[rows]) for column in (self.sm_clock_mhz, self.power_watts))
        reasons = [int(bits) for bits in self.reasons[rows] if bits >= 0]
        return DeviceReading(
            sm_clock_mhz=None if clock is None else round(clock),
            power_watts=power,
            slowed_by=slowdown_reasons(reduce(or_, reasons, 0)) if reasons else None,
        )

    def _nearest(self, moment_ns: int, after: int) -> DeviceReading:
        candidates = [row for row in (after - 1, after) if 0 <= row < len(self.time_ns)]
        distances = {row: abs(int(self.time_ns[row]) - moment_ns) for row in candidates}
        near = [row for row in candidates if distances[row] <= _NEAR_NS]
        if not near:
            return DeviceReading()
        row = min(near, key=lambda candidate: distances[candidate])
        return self.of(slice(row, row + 1))


_READ: Final = ("sm_clock_mhz", "power_milliwatts", "throttle_reasons")


def device_readings(samples: pl.DataFrame, device: int | None) -> DeviceReadings:
    """The readings of `device`; none where it is None."""
    own = samples.clear() if device is None else samples.filter(pl.col("device") == device)
    # Rows of PM sampling have counters alone, and lie nearer to everything.
    own = own.filter(pl.any_horizontal(pl.col(_READ).is_not_null())).sort("time_ns")
    return DeviceReadings(
        own["time_ns"].to_numpy(),
        own["sm_clock_mhz"].cast(pl.Float64).fill_null(float("nan")).to_numpy(),
        (own["power_milliwatts"] / 1e3).cast(pl.Float64).fill_null(float("nan")).to_numpy(),
        own["throttle_reasons"].fill_null(-1).to_numpy(),
    )


def _median(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None
