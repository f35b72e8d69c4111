"""NVML whose functions are missing, raise, or answer nonsense: one reading less, and one note."""

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import polars as pl
import pytest
from fake_nvml import FAULTS, HUGE, FakeNvml, Faulty, raising

from gpuprof.collectors import schema
from gpuprof.collectors.live import fingerprint
from gpuprof.collectors.live.collected import table_of
from gpuprof.collectors.live.nvml import gpm, library, readings, sampler
from gpuprof.collectors.live.nvml.processes import compute_processes
from gpuprof.collectors.live.nvml.readings import RANGES
from gpuprof.collectors.live.nvml.sampler import NvmlSampler
from gpuprof.collectors.manifest import Device

SOURCES = (gpm, library, readings, sampler)
# Every function of NVML that the sampler can call, by inspection.
_CALL = re.compile(r"\b(?:lib|library|module)\.(c?_?nvml\w+)")
FUNCTIONS = sorted(
    {name for module in SOURCES for name in _CALL.findall(inspect.getsource(module))}
)
# What a function's failure leaves empty. Functions not named here leave nothing empty.
EMPTIES = {
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz", "memory_clock_mhz"},
    "nvmlDeviceGetPowerUsage": {"power_milliwatts"},
    "nvmlDeviceGetTotalEnergyConsumption": {"energy_millijoules"},
    "nvmlDeviceGetTemperature": {"temperature_celsius"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttle_reasons"},
    "nvmlDeviceGetCurrentClocksThrottleReasons": {"throttle_reasons"},
    "nvmlDeviceGetUtilizationRates": {"utilisation_percent"},
    "nvmlDeviceGetMemoryInfo": {"memory_used_bytes"},
    "nvmlDeviceGetCurrPcieLinkGeneration": {"pcie_generation"},
    "nvmlDeviceGetCurrPcieLinkWidth": {"pcie_width"},
    "nvmlDeviceGetPcieThroughput": {"pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"},
}
# Without these there is no device to ask.
NEEDED = {"nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
GPM_COLUMNS = {name for name in RANGES if re.match("sm_active|tensor|dram|nvlink|window", name)}


@pytest.fixture(autouse=True)
def _no_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    clock = iter(range(0, 10**15, 200_000_000))
    monkeypatch.setattr("gpuprof.collectors.live.nvml.gpm.time.monotonic_ns", lambda: next(clock))


def sample(nvml: object, samples: int = 3) -> tuple[list[str], pl.DataFrame]:
    """The notes and the rows of a recording with so many samples."""
    one = NvmlSampler(library=nvml, interval_ns=10**15)
    one.start()
    for _ in range(samples - 2):
        one._sample_all()
    frame = table_of("samples", one.stop())
    return [note.sentence for note in one.notes], frame


def empty_columns(frame: pl.DataFrame) -> set[str]:
    return {name for name in RANGES if frame[name].null_count() == frame.height}


def test_the_functions_were_found() -> None:
    assert set(EMPTIES) | NEEDED < set(FUNCTIONS)
    assert len(FUNCTIONS) > 20


@pytest.mark.parametrize("gpm_is_there", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_faulty_function_costs_its_own_columns_and_a_note_each(
    function: str, gpm_is_there: bool
) -> None:
    healthy_notes, healthy = sample(FakeNvml(gpm=gpm_is_there))
    for fault, answer in FAULTS.items():
        notes, frame = sample(Faulty(FakeNvml(gpm=gpm_is_there), function, answer))
        assert frame.schema == schema.SAMPLES, fault
        # Nothing is said twice, and no note spans lines.
        assert max(Counter(notes).values(), default=0) <= 1, fault
        assert not [note for note in notes if "\n" in note or len(note) > 200], fault
        for name, (lowest, highest) in RANGES.items():
            values = frame[name].drop_nulls().to_list()
            assert all(lowest <= value <= highest for value in values), (fault, name)
        if frame.is_empty():
            assert function in NEEDED, fault
            assert len(notes) == 1, fault
            continue
        assert frame.height == healthy.height, fault
        if function == "nvmlDeviceGetHandleByIndex":
            # With a handle that is none, anything may answer or not.
            continue
        lost = empty_columns(frame) - empty_columns(healthy)
        if function.lower().startswith(("nvmlgpm", "c_nvmlgpm")):
            assert lost <= GPM_COLUMNS, fault
            # Traffic over PCIe has a second source.
            assert frame["pcie_rx_bytes_per_s"].drop_nulls().len() > 0, fault
        else:
            assert lost <= EMPTIES.get(function, set()), fault
        for name in lost - GPM_COLUMNS:
            assert len([note for note in notes if name in note]) == 1, fault
        assert len(notes) <= len(healthy_notes) + max(1, len(lost)), fault


@pytest.mark.parametrize("fault", ["missing", "NVMLError", "TypeError"])
def test_the_old_name_of_a_function_is_tried(fault: str) -> None:
    nvml = FakeNvml()
    assert not hasattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons")
    both = Faulty(nvml, "nvmlDeviceGetCurrentClocksEventReasons", FAULTS[fault])
    notes, frame = sample(both)
    assert frame["throttle_reasons"].to_list() == [4, 4, 4]
    assert not [note for note in notes if "throttle" in note]


def test_a_value_out_of_range_is_absent_and_the_next_one_counts() -> None:
    answers = iter([HUGE, 97, 255])
    nvml = Faulty(
        FakeNvml(),
        "nvmlDeviceGetUtilizationRates",
        lambda: SimpleNamespace(gpu=next(answers), memory=0),
    )
    notes, frame = sample(nvml)
    assert frame["utilisation_percent"].to_list() == [None, 97.0, None]
    assert [note for note in notes if "utilisation" in note] == [
        f"device 0: utilisation_percent from NVML is out of range ({HUGE})"
    ]


class GpuIsLostError(FakeNvml.NVMLError):
    value = 15


def test_a_lost_device_keeps_the_samples_it_had() -> None:
    answers = iter([37, 37, 37])

    def utilisation() -> SimpleNamespace:
        try:
            return SimpleNamespace(gpu=next(answers))
        except StopIteration:
            raise GpuIsLostError("GPU is lost") from None

    notes, frame = sample(Faulty(FakeNvml(), "nvmlDeviceGetUtilizationRates", utilisation), 6)
    assert frame["utilisation_percent"].to_list() == [37.0] * 3
    assert frame["power_milliwatts"].null_count() == 0
    assert [note for note in notes if "stopped" in note] == [
        "device 0: sampling stopped (GPU is lost)"
    ]


@pytest.mark.parametrize("function", ["nvmlDeviceGetMigMode", "nvmlDeviceIsMigDeviceHandle"])
def test_where_mig_is_on_utilisation_is_unknown_and_never_0(function: str) -> None:
    class Idle(FakeNvml):
        def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
            return SimpleNamespace(gpu=0, memory=0)

    answer = (1, 1) if function == "nvmlDeviceGetMigMode" else 1
    notes, frame = sample(Faulty(Idle(), function, lambda: answer))
    assert frame["utilisation_percent"].null_count() == frame.height
    assert frame["memory_used_bytes"].null_count() == 0
    assert len([note for note in notes if "utilisation_percent" in note and "MIG" in note]) == 1


def test_gpm_that_stops_midway_frees_its_samples_and_leaves_pcie_to_nvml() -> None:
    class Stopping(FakeNvml):
        reads = 0

        def nvmlGpmMetricsGet(self, request: SimpleNamespace) -> None:
            self.reads += 1
            if self.reads > 2:
                raise OSError("driver restarted")
            super().nvmlGpmMetricsGet(request)

    nvml = Stopping(gpm=True)
    notes, frame = sample(nvml, 6)
    assert frame["tensor_active_percent"].null_count() == 4
    assert frame["pcie_rx_bytes_per_s"].to_list()[-1] == 1_501_000
    assert [note for note in notes if "GPM" in note] == ["device 0: GPM stopped (driver restarted)"]
    assert nvml.gpm_samples == 0


def test_gpm_that_does_not_begin_frees_what_it_allocated() -> None:
    class Stopping(FakeNvml):
        def nvmlGpmSampleGet(self, handle: int, sample: object) -> None:
            raise OSError("no counters")

    nvml = Stopping(gpm=True)
    sample(nvml)
    assert nvml.gpm_samples == 0


def test_a_metric_that_an_old_pynvml_cannot_name_costs_itself_only() -> None:
    nvml = Faulty(FakeNvml(gpm=True), "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", None)
    _, frame = sample(nvml)
    assert frame["nvlink_tx_bytes_per_s"].null_count() == frame.height
    assert frame["tensor_active_percent"].to_list()[-1] == 61.5


@pytest.mark.parametrize("count", [None, -1, "1", HUGE, 1.0])
def test_a_count_that_is_none_is_not_believed(count: object) -> None:
    notes, frame = sample(Faulty(FakeNvml(), "nvmlDeviceGetCount", lambda: count))
    assert frame.is_empty()
    assert notes == [f"no GPU state was sampled: NVML counts {count!r} devices"]


class OneLost(FakeNvml):
    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 0:
            raise self.NVMLError("GPU is lost")
        return index


def test_where_one_device_does_not_open_the_numbers_of_the_others_are_unknown() -> None:
    notes, frame = sample(OneLost(devices=2))
    assert frame.is_empty()
    assert notes == ["no GPU state was sampled: NVML does not open device 0"]


def test_a_device_named_by_uuid_is_sampled_beside_one_that_does_not_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    _, frame = sample(OneLost(devices=2))
    assert frame["power_milliwatts"].unique().to_list() == [612_001]


def test_a_mig_slice_that_does_not_open_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1234")
    notes, frame = sample(FakeNvml())
    assert frame.is_empty()
    assert notes == ["device 0: NVML does not open it"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("print 'Python 2'\n", "Missing parentheses"),
        ("raise OSError('libnvidia-ml.so.1: cannot open')\n", "libnvidia-ml.so.1"),
        ("raise RuntimeError\n", "RuntimeError"),
        ("import no_such_package\n", "no_such_package"),
        ("", "nvmlInit"),
    ],
)
def test_a_pynvml_that_does_not_import_is_one_note(
    source: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    notes, frame = sample(None)
    assert frame.is_empty()
    (note,) = notes
    assert note.startswith("NVML not available, so no GPU state was sampled: ")
    assert reason in note


def use(monkeypatch: pytest.MonkeyPatch, nvml: Any) -> None:
    """Let `import pynvml` give `nvml`."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


def torch_with_one_gpu() -> Any:
    properties = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3",
        uuid="a",
        total_memory=1,
        multi_processor_count=132,
        major=9,
        minor=0,
        L2_cache_size=1,
        warp_size=32,
    )
    return SimpleNamespace(
        version=SimpleNamespace(hip=None),
        cuda=SimpleNamespace(
            device_count=lambda: 1, get_device_properties=lambda index: properties
        ),
    )


FINGERPRINT_FUNCTIONS = sorted({*_CALL.findall(inspect.getsource(fingerprint)), *FUNCTIONS})


@pytest.mark.parametrize("function", FINGERPRINT_FUNCTIONS)
def test_a_fingerprint_can_be_read_again_whatever_nvml_answers(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fault, answer in FAULTS.items():
        use(monkeypatch, Faulty(FakeNvml(), function, answer))
        (device,) = fingerprint.accelerators(torch_with_one_gpu())
        assert msgspec.json.decode(msgspec.json.encode(device), type=Device) == device, fault
        assert (device.maximum_sm_clock_mhz or 0) in range(20_000), fault


@pytest.mark.parametrize("function", [*FUNCTIONS, "nvmlDeviceGetComputeRunningProcesses"])
def test_other_processes_are_counted_or_unknown(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fault, answer in FAULTS.items():
        use(monkeypatch, Faulty(FakeNvml(), function, answer))
        count = compute_processes()
        assert count is None or 0 <= count <= 4, fault


def test_a_module_that_fails_in_every_way_at_once() -> None:
    hopeless = ModuleType("pynvml")

    def fail(name: str) -> Callable[..., object]:
        return lambda *_: raising(RuntimeError(name))()

    hopeless.__getattr__ = fail  # type: ignore[method-assign]
    notes, frame = sample(hopeless)
    assert frame.is_empty()
    assert notes == [
        "NVML not available, so no GPU state was sampled: NVML does not start: nvmlInit"
    ]
