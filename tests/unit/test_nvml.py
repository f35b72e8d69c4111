"""The NVML sampler against a stand-in for pynvml: fields that fail, forks, memory, mapping."""

import os
import threading
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from gpuprof.collectors import schema
from gpuprof.collectors.live.nvml import sampler as nvml
from gpuprof.collectors.live.nvml.sampler import NvmlSampler, slowdown_reasons, visible_uuids


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
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5
    NVML_GPM_METRIC_DRAM_BW_UTIL = 10
    NVML_GPM_METRIC_PCIE_TX_PER_SEC = 20
    NVML_GPM_METRIC_PCIE_RX_PER_SEC = 21
    NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 61
    NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC = 60

    def __init__(
        self, devices: int = 1, *, names: tuple[str, ...] = (), gpm: bool = False, broken: str = ""
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
        answers = {5: 61.5, 10: 33.25, 20: 2.0, 21: 3.0, 61: 0.0}
        for metric in request.metrics[: request.numMetrics]:
            metric.value = answers.get(metric.metricId, float("nan"))

    def _uuids(self) -> list[str]:
        return [f"GPU-{letter}" for letter in "abcdefgh"[: len(self.names)]]


@pytest.fixture(autouse=True)
def _no_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)


def sample_once(library: FakeNvml, **arguments: Any) -> tuple[NvmlSampler, pl.DataFrame]:
    """Start and stop: one sample at each end."""
    sampler = NvmlSampler(library=library, interval_ns=10**12, **arguments)
    sampler.start()
    return sampler, sampler.stop()


def test_samples_have_the_table_schema_and_the_units_of_its_columns() -> None:
    library = FakeNvml(devices=2)
    _, frame = sample_once(library, rank=3)
    assert frame.schema == schema.SAMPLES
    assert frame.height == 4
    row = frame.filter(pl.col("device") == 1).row(0, named=True)
    assert row["rank"] == 3
    assert row["sm_clock_mhz"] == 1755
    assert row["power_milliwatts"] == 612_001
    assert row["throttle_reasons"] == 0x4
    assert row["pcie_rx_bytes_per_s"] == 1_501_000
    assert row["tensor_active_percent"] is None
    assert library.sessions == 0


def test_a_field_that_fails_is_disabled_alone_and_noted_once() -> None:
    library = FakeNvml(broken="power")
    sampler, frame = sample_once(library)
    assert frame["power_milliwatts"].to_list() == [None, None]
    assert frame["sm_clock_mhz"].to_list() == [1755, 1755]
    assert library.power_reads == 1
    assert [note for note in sampler.notes if "power_milliwatts" in note] == [
        "device 0: no power_milliwatts from NVML (Not Supported)"
    ]


def test_activity_comes_from_gpm_where_the_device_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**12, 200_000_000))
    monkeypatch.setattr("gpuprof.collectors.live.nvml.gpm.time.monotonic_ns", lambda: next(clock))
    library = FakeNvml(gpm=True)
    sampler, frame = sample_once(library)
    row = frame.row(-1, named=True)
    assert row["tensor_active_percent"] == 61.5
    assert row["dram_active_percent"] == 33.25
    assert row["pcie_tx_bytes_per_s"] == 2 * 2**20
    # NaN from the driver is unknown.
    assert row["nvlink_rx_bytes_per_s"] is None
    assert row["nvlink_tx_bytes_per_s"] == 0
    assert library.gpm_samples == 0
    assert not sampler.notes


def test_gpm_is_not_asked_again_before_its_averages_mean_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(0, 10**12, 1_000_000))
    monkeypatch.setattr("gpuprof.collectors.live.nvml.gpm.time.monotonic_ns", lambda: next(clock))
    _, frame = sample_once(FakeNvml(gpm=True))
    assert frame["tensor_active_percent"].to_list() == [None, None]


def test_without_nvml_nothing_is_sampled_and_the_reason_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvml, "open_library", lambda: (None, "NVML does not start: no driver"))
    sampler = NvmlSampler()
    sampler.start()
    sampler.slow_down()
    frame = sampler.stop()
    assert frame.height == 0
    assert frame.schema == schema.SAMPLES
    assert sampler.notes == ["no GPU state was sampled: NVML does not start: no driver"]


def test_the_thread_samples_in_the_background_and_ends_with_stop() -> None:
    class Announcing(FakeNvml):
        def __init__(self) -> None:
            super().__init__()
            self.five_reads = threading.Event()

        def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
            power = super().nvmlDeviceGetPowerUsage(handle)
            if self.power_reads == 5:
                self.five_reads.set()
            return power

    library = Announcing()
    sampler = NvmlSampler(library=library, interval_ns=1_000_000)
    sampler.start()
    threads = [thread for thread in threading.enumerate() if thread.name == "gpuprof-nvml"]
    assert [thread.daemon for thread in threads] == [True]
    assert library.five_reads.wait(60)
    frame = sampler.stop()
    assert frame.height >= 6
    assert frame["time_ns"].is_sorted()
    assert not threads[0].is_alive()
    assert sampler.stop().height == 0


def test_memory_is_bounded_by_sampling_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_MAXIMUM_ROWS", 8)
    library = FakeNvml()
    sampler = NvmlSampler(library=library, interval_ns=10**12)
    sampler.start()
    for _ in range(100):
        sampler._sample_all()
    assert sampler._interval_ns > 10**12
    assert sampler.stop().height <= 9


def test_slowing_down_never_speeds_up() -> None:
    sampler = NvmlSampler(library=FakeNvml(), interval_ns=5 * 10**9)
    sampler.slow_down()
    assert sampler._interval_ns == 5 * 10**9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_returns_no_rows_and_does_not_hang() -> None:
    sampler = NvmlSampler(library=FakeNvml(), interval_ns=1_000_000)
    sampler.start()
    child = os.fork()
    if child == 0:
        os._exit(sampler.stop().height)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert sampler.stop().height > 0


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, {0: "GPU-a", 1: "GPU-b", 2: "GPU-c"}),
        ("2,0", {0: "GPU-c", 1: "GPU-a"}),
        ("GPU-b", {0: "GPU-b"}),
        ("MIG-1234", {0: "MIG-1234"}),
        ("", {}),
        ("-1", {}),
        ("1,7,0", {0: "GPU-b"}),
    ],
)
def test_cuda_numbers_follow_the_visible_devices(
    visible: str | None, expected: dict[int, str]
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert visible_uuids(FakeNvml(devices=3), environment) == expected


def test_gpus_of_several_kinds_need_a_fixed_order() -> None:
    library = FakeNvml(names=("NVIDIA T4", "NVIDIA A10"))
    with pytest.raises(ValueError, match="PCI_BUS_ID"):
        visible_uuids(library, {})
    ordered = visible_uuids(library, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert ordered == {0: "GPU-a", 1: "GPU-b"}
    assert visible_uuids(library, {"CUDA_VISIBLE_DEVICES": "GPU-b"}) == {0: "GPU-b"}


def test_only_the_asked_devices_are_sampled() -> None:
    _, frame = sample_once(FakeNvml(devices=3), device_indices=[1])
    assert frame["device"].unique().to_list() == [1]


def test_slowdowns_are_named_and_idling_is_none() -> None:
    assert slowdown_reasons(0x1 | 0x2) == ()
    assert slowdown_reasons(0x4 | 0x40) == ("software power cap", "hardware thermal slowdown")
