"""The NVML sampler against a stand-in for pynvml: fields that fail, forks, memory, mapping."""

import os
import threading
from typing import Any

import polars as pl
import pytest
from fake_nvml import FakeNvml, Faulty

from gpuprof.collectors import schema
from gpuprof.collectors.live.collected import table_of
from gpuprof.collectors.live.nvml import sampler as nvml
from gpuprof.collectors.live.nvml.library import visible_handles
from gpuprof.collectors.live.nvml.sampler import NvmlSampler
from gpuprof.collectors.live.nvml.slowdowns import slowdown_reasons


@pytest.fixture(autouse=True)
def _no_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)


def sample_once(library: Any, **arguments: Any) -> tuple[NvmlSampler, pl.DataFrame]:
    """Start and stop: one sample at each end."""
    sampler = NvmlSampler(library=library, interval_ns=10**12, **arguments)
    sampler.start()
    return sampler, table_of("samples", sampler.stop())


def sentences(sampler: NvmlSampler) -> list[str]:
    return [note.sentence for note in sampler.notes]


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
    assert [note for note in sentences(sampler) if "power_milliwatts" in note] == [
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
    assert row["sm_active_percent"] == 88.5
    # Each window begins where the one before has ended.
    first, last = frame.select("window_start_ns", "window_end_ns").rows()
    assert first[0] < first[1] == last[0] < last[1]
    assert library.gpm_samples == 0
    assert not sampler.notes


def test_gpm_is_not_asked_again_before_its_averages_mean_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(0, 10**12, 1_000_000))
    monkeypatch.setattr("gpuprof.collectors.live.nvml.gpm.time.monotonic_ns", lambda: next(clock))
    _, frame = sample_once(FakeNvml(gpm=True))
    assert frame["tensor_active_percent"].to_list() == [None, None]
    assert frame["window_end_ns"].to_list() == [None, None]


def test_without_nvml_nothing_is_sampled_and_the_reason_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    why_not = "NVML does not start: no driver"
    monkeypatch.setattr(nvml, "open_library", lambda module: (None, why_not))
    sampler = NvmlSampler()
    sampler.start()
    sampler.slow_down()
    assert sampler.stop() == {}
    assert sentences(sampler) == [
        "NVML not available, so no GPU state was sampled: NVML does not start: no driver"
    ]


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
    frame = table_of("samples", sampler.stop())
    assert frame.height >= 6
    assert frame["time_ns"].is_sorted()
    assert not threads[0].is_alive()
    assert sampler.stop() == {}


def test_memory_is_bounded_by_sampling_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_MAXIMUM_ROWS", 8)
    library = FakeNvml()
    sampler = NvmlSampler(library=library, interval_ns=10**12)
    sampler.start()
    for _ in range(100):
        sampler._sample_all()
    assert sampler._thread.interval_ns > 10**12
    assert table_of("samples", sampler.stop()).height <= 9


def test_slowing_down_never_speeds_up() -> None:
    sampler = NvmlSampler(library=FakeNvml(), interval_ns=5 * 10**9)
    sampler.slow_down()
    assert sampler._thread.interval_ns == 5 * 10**9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_returns_no_rows_and_does_not_hang() -> None:
    sampler = NvmlSampler(library=FakeNvml(), interval_ns=1_000_000)
    sampler.start()
    child = os.fork()
    if child == 0:
        os._exit(len(sampler.stop()))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert table_of("samples", sampler.stop()).height > 0


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, {0: 0, 1: 1, 2: 2}),
        ("2,0", {0: 2, 1: 0}),
        ("GPU-b", {0: 1}),
        ("GPU-b,GPU-a", {0: 1, 1: 0}),
        # A slice that NVML does not open is a device without a handle.
        ("MIG-1234", {0: None}),
        ("", {}),
        ("-1", {}),
        ("1,7,0", {0: 1}),
        ("GPU-z,0", {}),
    ],
)
def test_cuda_numbers_follow_the_visible_devices(
    visible: str | None, expected: dict[int, int | None]
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert visible_handles(FakeNvml(devices=3), environment) == expected


def test_gpus_of_several_kinds_need_a_fixed_order() -> None:
    library = FakeNvml(names=("NVIDIA T4", "NVIDIA A10"))
    with pytest.raises(ValueError, match="PCI_BUS_ID"):
        visible_handles(library, {})
    ordered = visible_handles(library, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert ordered == {0: 0, 1: 1}
    assert visible_handles(library, {"CUDA_VISIBLE_DEVICES": "GPU-b"}) == {0: 1}


def test_gpus_whose_kind_is_unknown_need_a_fixed_order_too() -> None:
    nameless = Faulty(FakeNvml(devices=2), "nvmlDeviceGetName", None)
    with pytest.raises(ValueError, match="PCI_BUS_ID"):
        visible_handles(nameless, {})
    # One alone has no order.
    assert visible_handles(Faulty(FakeNvml(), "nvmlDeviceGetName", None), {}) == {0: 0}


def test_devices_chosen_by_number_need_no_uuids() -> None:
    library = Faulty(FakeNvml(devices=2), "nvmlDeviceGetUUID", None)
    assert visible_handles(library, {"CUDA_VISIBLE_DEVICES": "1"}) == {0: 1}
    with pytest.raises(ValueError, match="by UUID, and NVML gives none"):
        visible_handles(library, {"CUDA_VISIBLE_DEVICES": "GPU-a"})


def test_only_the_asked_devices_are_sampled() -> None:
    _, frame = sample_once(FakeNvml(devices=3), device_indices=[1])
    assert frame["device"].unique().to_list() == [1]


def test_slowdowns_are_named_and_idling_is_none() -> None:
    assert slowdown_reasons(0x1 | 0x2) == ()
    assert slowdown_reasons(0x4 | 0x40) == ("software power cap", "hardware thermal slowdown")
