"""What the device was doing to itself while steps were timed: clocks, power, throttling."""

import polars as pl

from gpuprof.collectors.live.nvml.sampler import slowdown_reasons
from gpuprof.roofline.analysis import DeviceState


def device_state(samples: pl.DataFrame, steps: pl.DataFrame, device: int) -> DeviceState | None:
    """Summary of the samples of `device` between the first and the last timed step.

    All samples count where no step was timed. None where there are no samples.
    """
    chosen = samples.filter(pl.col("device") == device)
    timed = steps.filter(pl.col("phase") == "timed")
    if timed.height:
        during = chosen.filter(
            pl.col("time_ns").is_between(timed["start_ns"].min(), timed["end_ns"].max())
        )
        # Steps shorter than the sampling interval fall between two samples.
        chosen = during if during.height else chosen
    if chosen.is_empty():
        return None
    reasons = 0
    for bits in chosen["throttle_reasons"].drop_nulls().to_list():
        reasons |= bits
    power = _median(chosen["power_milliwatts"])
    return DeviceState(
        samples=chosen.height,
        sm_clock_mhz_median=_rounded(_median(chosen["sm_clock_mhz"])),
        sm_clock_mhz_minimum=_extreme(chosen["sm_clock_mhz"].min()),
        sm_clock_mhz_maximum=_extreme(chosen["sm_clock_mhz"].max()),
        power_watts_median=None if power is None else power / 1e3,
        temperature_celsius_maximum=_extreme(chosen["temperature_celsius"].max()),
        memory_used_bytes_maximum=_extreme(chosen["memory_used_bytes"].max()),
        throttle_reasons=slowdown_reasons(reasons),
    )


def _median(column: pl.Series) -> float | None:
    value = column.median()
    return float(value) if isinstance(value, (int, float)) else None


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def _extreme(value: object) -> int | None:
    return value if isinstance(value, int) else None
