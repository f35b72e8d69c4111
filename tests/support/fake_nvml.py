"""A stand-in for pynvml, whose every function can be made to fail."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class FakeNvml:
    """The calls of pynvml that the sampler uses, on GPUs with the UUIDs GPU-a, GPU-b, ..."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    NVML_PCIE_UTIL_TX_BYTES = 0
    NVML_PCIE_UTIL_RX_BYTES = 1
    NVML_SUCCESS = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_NVLINK_MAX_LINKS = 36
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_SM_UTIL = 2
    NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5
    NVML_GPM_METRIC_DRAM_BW_UTIL = 10
    NVML_GPM_METRIC_PCIE_TX_PER_SEC = 20
    NVML_GPM_METRIC_PCIE_RX_PER_SEC = 21
    NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 61
    NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC = 60

    def __init__(
        self,
        devices: int = 1,
        *,
        names: tuple[str, ...] = (),
        gpm: bool = False,
        broken: str = "",
    ) -> None:
        self.names = names or ("NVIDIA H100 80GB HBM3",) * devices
        self.gpm = gpm
        self.broken = broken
        self.sessions = 0
        self.gpm_samples = 0
        self.power_reads = 0

    def nvmlInit(self) -> None:
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self.sessions -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.10"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid not in self._uuids():
            raise self.NVMLError(f"no device {uuid}")
        return self._uuids().index(uuid)

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return self._uuids()[handle].encode()

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return self.names[handle].encode()

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> int:
        return {self.NVML_CLOCK_SM: 1755, self.NVML_CLOCK_MEM: 2619}[clock]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return 4_000_000_000 + self.power_reads

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self.power_reads += 1
        if self.broken == "power":
            raise self.NVMLError("Not Supported")
        return 612_000 + handle

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 54

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x4

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=97, memory=40)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(used=9_400_000_000)

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{handle + 0x3B:02X}:00.0".encode())

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        return 0

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:
        return (0, 0, 0, 0)

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:
        return 16

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 18:
            raise self.NVMLError("Invalid Argument")
        return 1

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return 2

    def nvmlDeviceGetTopologyCommonAncestor(self, first: int, second: int) -> int:
        return 50

    def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=7, smUtil=90), SimpleNamespace(pid=8, smUtil=0)]

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: int) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:
        return 16

    def nvmlDeviceGetMigMode(self, handle: int) -> tuple[int, int]:
        return (0, 0)

    def nvmlDeviceIsMigDeviceHandle(self, handle: int) -> int:
        return 0

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[object]:
        return [object()]

    def nvmlDeviceGetPcieThroughput(self, handle: int, counter: int) -> int:
        return 1500 + counter

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=int(self.gpm))

    def nvmlGpmSampleAlloc(self) -> object:
        self.gpm_samples += 1
        return object()

    def nvmlGpmSampleFree(self, sample: object) -> None:
        self.gpm_samples -= 1

    def nvmlGpmSampleGet(self, handle: int, sample: object) -> None:
        pass

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        metrics = [SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(8)]
        return SimpleNamespace(metrics=metrics)

    def nvmlGpmMetricsGet(self, request: SimpleNamespace) -> None:
        assert request.sample1 is not request.sample2
        answers = {2: 88.5, 5: 61.5, 10: 33.25, 20: 2.0, 21: 3.0, 61: 0.0}
        for metric in request.metrics[: request.numMetrics]:
            metric.value = answers.get(metric.metricId, float("nan"))

    def _uuids(self) -> list[str]:
        return [f"GPU-{letter}" for letter in "abcdefgh"[: len(self.names)]]


class Faulty:
    """`library` where the function called `name` answers with `fault()`, or is missing for None."""

    def __init__(self, library: FakeNvml, name: str, fault: Callable[[], object] | None) -> None:
        self._library = library
        self._name = name
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        if name != self._name:
            return getattr(self._library, name)
        fault = self._fault
        if fault is None:
            raise AttributeError(f"module 'pynvml' has no attribute {name!r}")
        return lambda *_: fault()


def raising(error: BaseException) -> Callable[[], object]:
    """A fault that raises `error`."""

    def fail() -> object:
        raise error

    return fail


class GarbledError(Exception):
    """As pynvml's own error where the function that words it is missing."""

    def __str__(self) -> str:
        raise AttributeError("nvmlErrorString")


HUGE = 2**64 - 1
# name: what a function does instead of answering; None is not being there.
FAULTS: dict[str, Callable[[], object] | None] = {
    "missing": None,
    "NVMLError": raising(FakeNvml.NVMLError("Unknown Error")),
    "AttributeError": raising(AttributeError("no such field")),
    "TypeError": raising(TypeError("takes 1 positional argument")),
    "OSError": raising(OSError(5, "Input/output error")),
    "RuntimeError": raising(RuntimeError()),
    "KeyError": raising(KeyError(999)),
    "MemoryError": raising(MemoryError()),
    "garbled": raising(GarbledError()),
    "None": lambda: None,
    "bytes": lambda: b"N/A\xff",
    "str": lambda: "N/A",
    "negative": lambda: -1,
    "huge": lambda: HUGE,
    "endless": lambda: 10**5000,
    "NaN": lambda: float("nan"),
    "infinite": lambda: float("inf"),
    "no fields": SimpleNamespace,
    "fields of None": lambda: SimpleNamespace(
        gpu=None, memory=None, used=None, total=None, isSupportedDevice=None
    ),
    "fields of nonsense": lambda: SimpleNamespace(
        gpu=HUGE, memory=255, used=-1, total=0, isSupportedDevice=1, metrics=[]
    ),
}
