"""The energy of a step, by the device's own counter."""

from typing import Final

import polars as pl

from gpuprof.collectors.manifest import Device
from gpuprof.roofline.energy_figures import Energy
from gpuprof.roofline.steps.device_state import working_times

# The counter is read every 0.1 s, and the driver brings it up to date about as often
# (nvmlDeviceGetTotalEnergyConsumption: since the driver was loaded, from Volta on).
_UPDATED_EVERY_S: Final = 0.1
# A reading that may be a quarter off says nothing.
_MOST_UNCERTAINTY: Final = 0.25
# Of the time between two readings: what timed steps must fill.
_FILLED: Final = 0.98


def energy_of_steps(
    samples: pl.DataFrame, steps: pl.DataFrame, device: Device | None
) -> Energy | None:
    """By the readings of the counter within the timed steps; None where they are too few.

    joules a step = (last reading - first reading) / time between them * mean step time: the power
    is a mean too, and steps need not be alike.
    """
    steps = steps.filter(pl.col("phase") == "timed")
    timed = working_times(steps)
    if device is None or device.kind == "cpu" or not timed:
        return None
    start_ns, end_ns = timed[0][0], max(end for _, end in timed)
    working_ns = sum(end - start for start, end in timed)
    if working_ns < _FILLED * (end_ns - start_ns):
        return None
    read = samples.filter(
        (pl.col("device") == device.index)
        & pl.col("time_ns").is_between(start_ns, end_ns)
        & pl.col("energy_millijoules").is_not_null()
    ).sort("time_ns")
    if read.height < 2:
        return None
    seconds = (read["time_ns"][-1] - read["time_ns"][0]) / 1e9
    joules = (read["energy_millijoules"][-1] - read["energy_millijoules"][0]) / 1e3
    uncertainty = _UPDATED_EVERY_S / seconds if seconds else 1.0
    # A driver that is loaded anew counts from 0.
    if joules <= 0 or uncertainty > _MOST_UNCERTAINTY:
        return None
    power = joules / seconds
    joules_per_step = power * (end_ns - start_ns) / 1e9 / len(timed)
    tokens = 0 if steps["tokens"].null_count() else int(steps["tokens"].sum())
    return Energy(
        power_watts=power,
        seconds=seconds,
        joules_per_step=joules_per_step,
        joules_per_token=joules_per_step * len(timed) / tokens if tokens else None,
        uncertainty=uncertainty,
    )
