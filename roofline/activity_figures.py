"""What the device's own counters say of the timed steps, beside what the models say.

Frozen structs. Shares are fractions of 1; None is unknown.
"""

import msgspec

from gpuprof.roofline.reading_figures import DeviceRates


class ActivityWindow(DeviceRates, frozen=True, kw_only=True):
    """One window of GPM, NVML's performance monitoring, or several that follow each other.

    Clock and power are medians of the samples in it.
    """

    start_ns: int
    end_ns: int
    # The timed steps that it can hold anything of, as the table of steps numbers them.
    first_step: int
    last_step: int


class UtilizationDifference(msgspec.Struct, frozen=True):
    """One reason why tensor cores are in use for other time than the model's FLOPs need."""

    reason: str
    # Of the peak; negative where it makes them work less.
    fraction: float


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """OFU beside MFU: ofu == mfu + the differences + unexplained.

    OFU is the share of the peak at which tensor cores would compute if they did nothing but whole
    instructions while they were active: tensor_active * clock_mhz / peak_clock_mhz (Pedersen et al.
    2026, arXiv:2605.20799).
    """

    ofu: float
    # That of the model's FLOPs, causal attention in full, at the peak of `precision`.
    mfu: float
    precision: str
    # The mean in the windows, and that which the peak assumes.
    clock_mhz: int
    peak_clock_mhz: int
    # Of ofu: two standard errors of the windows and of the clock, and at least two points.
    uncertainty: float
    differences: tuple[UtilizationDifference, ...] = ()
    unexplained: float = 0.0

    @property
    def gap(self) -> float:
        """OFU minus MFU."""
        return self.ofu - self.mfu


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Averages over the windows of GPM, NVML's performance monitoring, within the timed steps."""

    # Windows that lie whole in the timed steps, their median length, and of the steps' time what
    # they cover.
    windows: int
    window_ns: int | None = None
    covered_fraction: float = 0.0
    # Of the multiprocessors, the share that has work; of the cycles, in which any tensor core
    # works; and what the counted products need of the step at their peak rates and `clock_mhz`:
    # without what causal masks drop, and with it.
    sm_active: float | None = None
    tensor_active: float | None = None
    modelled_tensor: float | None = None
    modelled_tensor_full: float | None = None
    # The mean in the windows; None where NVML did not tell it, and the needs are those at the
    # datasheet's.
    clock_mhz: int | None = None
    # Of DRAM's peak bandwidth; bytes of one step by that, and by the models.
    dram_active: float | None = None
    dram_bytes: int | None = None
    modelled_bytes: int | None = None
    # Of both dram_active and dram_bytes: two standard errors of the windows, and at least 5 %.
    dram_uncertainty: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    # None where one of the two, or the clock, is not known, or they are not of the same work.
    reconciled: Reconciliation | None = None
    # Why DRAM moved other bytes than modelled, where these differ by more than the uncertainty.
    dram_reason: str = ""
    # The windows in order of time; those that follow each other together where there are many.
    time_line: tuple[ActivityWindow, ...] = ()
    # Timed steps that a window would fit into; None where one did, or the steps' length is unknown.
    steps_needed: int | None = None
