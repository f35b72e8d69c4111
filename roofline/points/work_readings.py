"""NVML's samples joined to launches: the clock that each kernel ran at, and its roof there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.live.nvml.slowdowns import slowdown_reasons
from gpuprof.roofline.analysis import DeviceState, RooflinePoint
from gpuprof.roofline.machine.ceilings import Roof, at_clock
from gpuprof.roofline.machine.roof_time import roof_time
from gpuprof.roofline.points.classify import SmClock
from gpuprof.roofline.points.total import Total
from gpuprof.roofline.reading_figures import WorkReading
from gpuprof.roofline.steps.device_readings import DeviceReadings

# NVML refreshes what it answers about this often (H200): a sample tells of launches as near as it.
_NEAR_NS: Final = 100_000_000


@dataclass(frozen=True)
class WorkReadings:
    """The samples of the device whose number in the trace is `device`."""

    readings: DeviceReadings
    device: int

    def by(self, kernels: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[Any, ...], WorkReading]:
        """What was read while the launches of each group ran; nothing for groups without."""
        if kernels.is_empty() or not len(self.readings.time_ns):
            return {}
        return {
            tuple(row[key] for key in keys): found
            for row in self._joined(kernels)
            .group_by(keys, maintain_order=True)
            .agg(
                pl.col("duration_ns").sum(),
                pl.col("seen_ns").sum(),
                sm_clock_mhz=_mean("sm_clock_mhz"),
                power_watts=_mean("power_watts"),
                reasons=pl.col("reasons").drop_nulls().unique(),
                seen=pl.col("near").any(),
            )
            .iter_rows(named=True)
            if (found := _reading(row)) is not None
        }

    def _joined(self, kernels: pl.DataFrame) -> pl.DataFrame:
        """`kernels` with what their samples say; null where none is near enough."""
        time_ns = self.readings.time_ns
        start, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
        first = np.searchsorted(time_ns, start)
        behind = np.searchsorted(time_ns, end, side="right")
        nearest = _nearest(time_ns, (start + end) // 2)
        near = (behind > first) | (np.abs(time_ns[nearest] - (start + end) // 2) <= _NEAR_NS)
        reasons = self.readings.reasons[nearest]
        for launch in np.flatnonzero(behind - first > 1):
            bits = self.readings.reasons[first[launch] : behind[launch]]
            reasons[launch] = np.bitwise_or.reduce(bits[bits >= 0], initial=0)
        columns = {
            "sm_clock_mhz": self._means(self.readings.sm_clock_mhz, first, behind, nearest),
            "power_watts": self._means(self.readings.power_watts, first, behind, nearest),
        }
        return kernels.with_columns(
            *(pl.Series(name, values, nan_to_null=True) for name, values in columns.items()),
            pl.Series("reasons", reasons),
            near=pl.Series(near) & (pl.col("device") == self.device).fill_null(False),
        ).with_columns(
            pl.when("near").then("sm_clock_mhz"),
            pl.when("near").then("power_watts"),
            pl.when(pl.col("near") & (pl.col("reasons") >= 0)).then("reasons"),
            seen_ns=pl.when("near").then("duration_ns").otherwise(0),
        )

    def _means(self, values: Any, first: Any, behind: Any, nearest: Any) -> Any:
        """Of the samples in each launch; of launches without one, the nearest."""
        known = ~np.isnan(values)
        sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
        counts = np.concatenate([[0], np.cumsum(known)])
        number = counts[behind] - counts[first]
        means = (sums[behind] - sums[first]) / np.maximum(number, 1)
        return np.where(number > 0, means, values[nearest])


def clock_of(state: DeviceState | None) -> SmClock | None:
    """The clock that the profiled work ran at; None where NVML did not tell it."""
    if state is None or not state.profiled_sm_clock_mhz_median:
        return None
    return SmClock(state.profiled_sm_clock_mhz_median, state.throttle_reasons or ())


def with_reading(
    point: RooflinePoint, reading: WorkReading | None, total: Total, roof: Roof | None
) -> RooflinePoint:
    """`point` with `reading`, and with the roof of `total` at its clock where that is known."""
    if reading is None:
        return point
    if point.transfer is None and point.roof_ns and roof is not None and reading.sm_clock_mhz:
        roof_ns = _roof_at(reading.sm_clock_mhz, total, roof)
        if roof_ns is not None and point.device_ns:
            reading = msgspec.structs.replace(
                reading, roof_ns=round(roof_ns), roof_fraction=roof_ns / point.device_ns
            )
    return msgspec.structs.replace(point, reading=reading)


def _roof_at(clock_mhz: int, total: Total, roof: Roof) -> float | None:
    if roof.source != "datasheet":
        return None
    ceilings = tuple(at_clock(each, clock_mhz) or each for each in roof.ceilings)
    binding = roof_time(total.flops, total.all_traffic, Roof(ceilings, roof.source)).binding
    return None if binding is None else binding.ns


def _nearest(time_ns: Any, moments: Any) -> Any:
    """The index of the sample nearest to each of `moments`."""
    after = np.clip(np.searchsorted(time_ns, moments), 1, max(len(time_ns) - 1, 1))
    before = after - 1
    after = np.minimum(after, len(time_ns) - 1)
    earlier = moments - time_ns[before] <= time_ns[after] - moments
    return np.where(earlier, before, after)


def _mean(column: str) -> pl.Expr:
    """Of `column`, weighted by the launches' durations; null where none has it."""
    weight = pl.when(pl.col(column).is_not_null()).then("seen_ns").otherwise(0)
    return (pl.col(column).fill_null(0.0) * weight).sum() / weight.sum()


def _reading(row: Mapping[str, Any]) -> WorkReading | None:
    if not row["seen"]:
        return None
    clock, power = (
        value if value is not None and np.isfinite(value) else None
        for value in (row["sm_clock_mhz"], row["power_watts"])
    )
    bits = 0
    for each in row["reasons"]:
        bits |= each
    return WorkReading(
        covered_fraction=row["seen_ns"] / row["duration_ns"] if row["duration_ns"] else 1.0,
        sm_clock_mhz=None if clock is None else round(clock),
        power_watts=power,
        slowed_by=slowdown_reasons(bits) if row["reasons"] else None,
    )
