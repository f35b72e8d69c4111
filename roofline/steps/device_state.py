"""What the device was doing to itself while steps were timed: clocks, power, throttling."""

from functools import reduce
from operator import or_

import polars as pl

from gpuprof.collectors.live.nvml.slowdowns import slowdown_reasons
from gpuprof.roofline.analysis import DeviceState


def device_state(samples: pl.DataFrame, steps: pl.DataFrame, device: int) -> DeviceState | None:
    """Summary of the samples of `device` that were taken while it did the timed steps.

    None where there are none: what a device did before or after says nothing about the steps.
    """
    return summarize_samples(
        _samples_during(samples, device, working_times(steps.filter(pl.col("phase") == "timed")))
    )


def profiled_clock_mhz(samples: pl.DataFrame, kernels: pl.DataFrame, device: int) -> int | None:
    """Median SM clock of `device` from the first to the last work of the profiled steps."""
    profiled = kernels.drop_nulls("step")
    if profiled.is_empty():
        return None
    span = int(profiled["start_ns"].min()), int(profiled["end_ns"].max())  # type: ignore[arg-type]
    during = _samples_during(samples, device, [span])
    return None if during.is_empty() else _rounded(_median(during["sm_clock_mhz"]))


def _samples_during(
    samples: pl.DataFrame, device: int, times: list[tuple[int, int]]
) -> pl.DataFrame:
    windows = pl.DataFrame(
        times,
        schema={"begun_ns": pl.Int64, "done_ns": pl.Int64},
        orient="row",
    ).sort("begun_ns")
    # Windows may overlap: a sample lies in one where any that began before it is not yet done.
    return (
        samples.filter(pl.col("device") == device)
        .sort("time_ns")
        .join_asof(
            windows.with_columns(pl.col("done_ns").cum_max()),
            left_on="time_ns",
            right_on="begun_ns",
        )
        .filter(pl.col("time_ns") <= pl.col("done_ns"))
    )


def summarize_samples(samples: pl.DataFrame) -> DeviceState | None:
    """Summary of all rows of `samples`, which are of one device; None where there are none."""
    if samples.is_empty():
        return None
    answered = samples["throttle_reasons"].drop_nulls().to_list()
    reasons = reduce(or_, answered, 0)
    power = _median(samples["power_milliwatts"])
    return DeviceState(
        samples=samples.height,
        sm_clock_mhz_median=_rounded(_median(samples["sm_clock_mhz"])),
        sm_clock_mhz_minimum=_extreme(samples["sm_clock_mhz"].min()),
        sm_clock_mhz_maximum=_extreme(samples["sm_clock_mhz"].max()),
        power_watts_median=None if power is None else power / 1e3,
        temperature_celsius_maximum=_extreme(samples["temperature_celsius"].max()),
        memory_used_bytes_maximum=_extreme(samples["memory_used_bytes"].max()),
        pcie_generation=_extreme(samples["pcie_generation"].max()),
        pcie_width=_extreme(samples["pcie_width"].max()),
        throttle_reasons=slowdown_reasons(reasons) if answered else None,
    )


def working_times(steps: pl.DataFrame) -> list[tuple[int, int]]:
    """When the device worked on each of `steps`, as (start, end) in Unix ns, in order of start.

    The host marks steps when it queues their work and may be far ahead, so its own times are
    used only where no events were recorded, and for a bench, whose steps lie anywhere between
    its start and its end. Captures of older versions hold how long the device took and not when:
    it cannot have begun before the host did, and it then worked without a pause, so that the
    times are added up from there.
    """
    windows: list[tuple[int, int]] = []
    reached_ns = 0
    columns = ("start_ns", "end_ns", "device_ns", "device_start_ns")
    for start_ns, end_ns, device_ns, device_start_ns in (
        steps.sort("start_ns").select(columns).iter_rows()
    ):
        if device_ns is None:
            windows.append((start_ns, end_ns))
        elif device_start_ns is not None:
            windows.append((device_start_ns, device_start_ns + device_ns))
        else:
            begun_ns = max(start_ns, reached_ns)
            reached_ns = begun_ns + device_ns
            windows.append((begun_ns, max(end_ns, reached_ns)))
    return windows


def _median(column: pl.Series) -> float | None:
    value = column.median()
    return float(value) if isinstance(value, (int, float)) else None


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def _extreme(value: object) -> int | None:
    return value if isinstance(value, int) else None
