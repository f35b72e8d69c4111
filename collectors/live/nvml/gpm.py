"""GPU performance monitoring (GPM): activity of units, counted by Hopper and later.

NVML keeps the counters in two samples; the rates are averages over the time between them.
"""

import math
import time
from collections.abc import Mapping
from typing import Any, Final

from gpuprof.collectors.live.nvml.library import answer

# NVIDIA documents the rates for samples at least this far apart.
_MINIMUM_NS: Final = 100_000_000
_MEBIBYTE: Final = 2**20

_METRICS: Final[Mapping[str, tuple[str, float]]] = {
    # column: (name of the GPM metric, factor to the column's unit)
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
            self._earlier_ns = time.monotonic_ns()
            library.nvmlGpmSampleGet(handle, self._samples[0])
        except BaseException:
            self.close()
            raise

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it fills."""
        return tuple(self._metrics)

    def read(self) -> dict[str, float | None]:
        """Rates since the last read by column; empty where that was too short a while ago.

        Raises what NVML raises.
        """
        now = time.monotonic_ns()
        if now - self._earlier_ns < _MINIMUM_NS:
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
        self._earlier_ns = now
        rates: dict[str, float | None] = {}
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
