"""NVML's readings beside work: clock, power and what lowered the clock. Parts of an `Analysis`.

Frozen structs; unknown is None. Power is the driver's, on recent devices an average of about the
last second.
"""

import msgspec


class DeviceClock(msgspec.Struct, frozen=True, kw_only=True):
    """What NVML's samples say of the device: clock, power, and all that slowed it down."""

    sm_clock_mhz: int | None = None
    power_watts: float | None = None
    # In NVML's words; () where nothing lowered the clock.
    slowed_by: tuple[str, ...] | None = None


class DeviceRates(DeviceClock, frozen=True, kw_only=True):
    """The same, and what the device's own counters say, as averages over their windows."""

    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None


class WorkReading(DeviceClock, frozen=True, kw_only=True):
    """The device while some work ran: each launch by the samples in it, or the one nearest to it.

    Means are weighted by the launches' durations.
    """

    # Of the work's device time, the share that has a sample within 0.1 s.
    covered_fraction: float
    # The least time of the work at that clock, and its share of the device time. Memory's ceilings
    # are as they are at any clock. None where the roof is no datasheet's.
    roof_ns: int | None = None
    roof_fraction: float | None = None


class StepReading(DeviceRates, frozen=True, kw_only=True):
    """Timed steps that follow each other and had the same readings; one, where it is long.

    Its rates are of windows that lie whole in it, which takes a step of over 0.3 s.
    """

    # As the table of steps numbers them.
    first_step: int
    last_step: int
    start_ns: int
    mean_ns: int
