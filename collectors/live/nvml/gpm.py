"""GPU performance monitoring (GPM): activity of units, counted by Hopper and later.

NVML keeps the counters in two samples; the rates are averages over the time between them. The
device refreshes its counters only so often: a sample holds them as they were up to that long ago.
"""

import math
import time
from collections.abc import Mapping
from typing import Any, Final

from gpuprof.collectors.live.nvml.library import answer

# NVML API reference, nvmlGpmMetricsGet: the interval between two samples should be longer than
# 100 ms, because of the counters' internal refresh rate.
REFRESH_NS: Final = 100_000_000
_MEBIBYTE: Final = 2**20

_METRICS: Final[Mapping[str, tuple[str, float]]] = {
    # column: (name of the GPM metric, factor to the column's unit)
    "sm_active_percent": ("NVML_GPM_METRIC_SM_UTIL", 1.0),
    "tensor_active_percent": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 1.0),
    "dram_active_percent": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 1.0),
    "pcie_tx_bytes_per_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", _MEBIBYTE),
    "pcie_rx_bytes_per_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", _MEBIBYTE),
    "nvlink_tx_bytes_per_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", _MEBIBYTE),
    "nvlink_rx_bytes_per_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", _MEBIBYTE),
}


class Gpm:
    """The rates of one device, from each read to the next."""

    def __init__(self, library: Any, handle: Any) -> None:
        """Raises what NVML raises where the device has no GPM, and keeps nothing allocated."""
        self._library = library
        self._handle = handle
        self._samples: list[Any] = []
        # A pynvml older than a metric has no name for it.
        self._metrics = {
            column: (getattr(library, name), factor)
            for column, (name, factor) in _METRICS.items()
            if hasattr(library, name)
        }
        try:
            self._samples.append(library.nvmlGpmSampleAlloc())
            self._samples.append(library.nvmlGpmSampleAlloc())
            self._earlier_ns, self._start_ns = time.monotonic_ns(), time.time_ns()
            library.nvmlGpmSampleGet(handle, self._samples[0])
        except BaseException:
            self.close()
            raise

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of rates that it fills."""
        return tuple(self._metrics)

    def read(self) -> dict[str, float | None]:
        """Rates since the last read by column, with both times; empty where that was too recent.

        Raises what NVML raises.
        """
        now, now_unix = time.monotonic_ns(), time.time_ns()
        if now - self._earlier_ns < REFRESH_NS:
            return {}
        lib = self._library
        earlier, later = self._samples
        lib.nvmlGpmSampleGet(self._handle, later)
        request = lib.c_nvmlGpmMetricsGet_t()
        request.version = lib.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(self._metrics)
        request.sample1 = earlier
        request.sample2 = later
        for position, (metric, _) in enumerate(self._metrics.values()):
            request.metrics[position].metricId = metric
        lib.nvmlGpmMetricsGet(request)
        self._samples.reverse()
        rates: dict[str, float | None] = {
            "window_start_ns": self._start_ns,
            "window_end_ns": now_unix,
        }
        self._earlier_ns, self._start_ns = now, now_unix
        for position, (column, (_, factor)) in enumerate(self._metrics.items()):
            answer = request.metrics[position]
            known = answer.nvmlReturn == lib.NVML_SUCCESS and math.isfinite(answer.value)
            rates[column] = answer.value * factor if known else None
        return rates

    def close(self) -> None:
        """Free both samples."""
        for sample in self._samples:
            self._free(sample)
        self._samples = []

    def _free(self, sample: Any) -> None:
        answer(lambda: self._library.nvmlGpmSampleFree(sample))


def open_gpm(library: Any, handle: Any) -> Gpm | None:
    """GPM of a device, or None before Hopper, on a MIG slice, or with an old pynvml or driver."""
    supported = answer(lambda: library.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    return answer(lambda: Gpm(library, handle)) if supported else None
