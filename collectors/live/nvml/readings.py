"""The plain readings of one device: which of NVML's functions gives which column, and its range."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeGuard

from gpuprof.collectors.live.nvml.library import means_lost

# What each column of `samples` can hold, in its unit. NVML answers 4294967295 or 255 where it does
# not know, and anything else beyond these is no better.
RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "sm_clock_mhz": (0, 20_000),
    "memory_clock_mhz": (0, 50_000),
    "power_milliwatts": (0, 20_000_000),
    "energy_millijoules": (0, 2**60),
    "temperature_celsius": (0, 200),
    # Sixteen bits, of which NVML defines nine.
    "throttle_reasons": (0, 0xFFFF),
    "utilisation_percent": (0, 100),
    "memory_used_bytes": (0, 2**45),
    "pcie_generation": (1, 16),
    "pcie_width": (1, 32),
    "pcie_tx_bytes_per_s": (0, 1e13),
    "pcie_rx_bytes_per_s": (0, 1e13),
    "nvlink_tx_bytes_per_s": (0, 1e14),
    "nvlink_rx_bytes_per_s": (0, 1e14),
    "sm_active_percent": (0, 100),
    "tensor_active_percent": (0, 100),
    "dram_active_percent": (0, 100),
    # Unix nanoseconds.
    "window_start_ns": (0, 2**63 - 1),
    "window_end_ns": (0, 2**63 - 1),
}


def plausible(value: object, column: str) -> TypeGuard[int | float]:
    """Whether `value` is a number that `column` can hold."""
    lowest, highest = RANGES[column]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return lowest <= value <= highest


class Reading:
    """One column of one device, from the first of `functions` that answers; newer names first."""

    def __init__(self, column: str, *functions: Callable[[], Any]) -> None:
        self.column = column
        self._functions = list(functions)

    def read(self) -> Any:
        """What NVML answers. Raises what the last function raised where none does any longer."""
        try:
            return self._functions[0]()
        except Exception as error:
            if means_lost(error) or len(self._functions) == 1:
                raise
        del self._functions[0]
        return self.read()


def plain_readings(library: Any, handle: Any) -> list[Reading]:
    """What every device may answer. What a pynvml lacks fails at the first read, like the rest."""
    lib = library
    return [
        Reading("sm_clock_mhz", lambda: lib.nvmlDeviceGetClockInfo(handle, lib.NVML_CLOCK_SM)),
        Reading("memory_clock_mhz", lambda: lib.nvmlDeviceGetClockInfo(handle, lib.NVML_CLOCK_MEM)),
        Reading("power_milliwatts", lambda: lib.nvmlDeviceGetPowerUsage(handle)),
        Reading("energy_millijoules", lambda: lib.nvmlDeviceGetTotalEnergyConsumption(handle)),
        Reading(
            "temperature_celsius",
            lambda: lib.nvmlDeviceGetTemperature(handle, lib.NVML_TEMPERATURE_GPU),
        ),
        # Renamed in driver 535; the old name remains for older packages and drivers.
        Reading(
            "throttle_reasons",
            lambda: lib.nvmlDeviceGetCurrentClocksEventReasons(handle),
            lambda: lib.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        ),
        Reading("utilisation_percent", lambda: lib.nvmlDeviceGetUtilizationRates(handle).gpu),
        Reading("memory_used_bytes", lambda: lib.nvmlDeviceGetMemoryInfo(handle).used),
        # An idle link is slower than one in use.
        Reading("pcie_generation", lambda: lib.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        Reading("pcie_width", lambda: lib.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    ]


def pcie_readings(library: Any, handle: Any) -> list[Reading]:
    """Traffic over PCIe. Each blocks for about 20 ms; GPM has the same figures for free."""
    return [
        Reading(column, _pcie_reader(library, handle, counter))
        for column, counter in (
            ("pcie_tx_bytes_per_s", "NVML_PCIE_UTIL_TX_BYTES"),
            ("pcie_rx_bytes_per_s", "NVML_PCIE_UTIL_RX_BYTES"),
        )
    ]


def in_mig_mode(library: Any, handle: Any) -> bool:
    """Whether a device is split by MIG, or a slice of one that is. False where NVML can't tell."""
    with suppress(Exception):
        if library.nvmlDeviceGetMigMode(handle)[0] == 1:
            return True
    with suppress(Exception):
        return bool(library.nvmlDeviceIsMigDeviceHandle(handle) == 1)
    return False


def _pcie_reader(library: Any, handle: Any, counter: str) -> Callable[[], float]:
    # NVML gives KB/s.
    return lambda: library.nvmlDeviceGetPcieThroughput(handle, getattr(library, counter)) * 1000
