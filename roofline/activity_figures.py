"""What the device's own counters say of the timed steps, beside what the models say."""

import msgspec


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Averages over the windows of GPM, NVML's performance monitoring, within the timed steps.

    Shares are fractions of 1. None is unknown.
    """

    # Windows that lie whole in the timed steps, their median length, and of the steps' time what
    # they cover.
    windows: int
    window_ns: int | None = None
    covered_fraction: float = 0.0
    # Of the cycles, in which any tensor core works; and what the counted products need of the
    # step at their peak rates and `clock_mhz`: without what causal masks drop, and with it.
    tensor_active: float | None = None
    modelled_tensor: float | None = None
    modelled_tensor_full: float | None = None
    clock_mhz: int | None = None
    # Of DRAM's peak bandwidth; bytes of one step by that, and by the models.
    dram_active: float | None = None
    dram_bytes: int | None = None
    modelled_bytes: int | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    # Where measured and modelled differ by more than a tenth: why, as far as it is known.
    tensor_reason: str = ""
    dram_reason: str = ""
    # Timed steps that a window would fit into; None where one did, or the steps' length is unknown.
    steps_needed: int | None = None
