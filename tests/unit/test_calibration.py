"""Calibration on the CPU at small sizes: what is measured, left out, and left alone."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

torch = pytest.importorskip("torch")

from gpuprof.collectors import schema  # noqa: E402
from gpuprof.collectors.errors import MissingDependencyError  # noqa: E402
from gpuprof.collectors.live.nvml.slowdowns import SLOWDOWN_REASONS  # noqa: E402
from gpuprof.collectors.manifest import Device  # noqa: E402
from gpuprof.reference_kernels.calibration import (  # noqa: E402
    conditions,
    gemm,
    launch,
    links,
    measure,
    on_chip,
    timing,
)
from gpuprof.reference_kernels.calibration.probe import Call  # noqa: E402
from gpuprof.reference_kernels.calibration.stream import make_streams  # noqa: E402

CPU = Device(index=0, kind="cpu", name="A CPU", multiprocessors=2, l2_cache_bytes=2**20)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_SMALLEST_GEMM", 32)
    monkeypatch.setattr(measure, "_LARGEST_GEMM", 64)
    monkeypatch.setattr(measure, "_REPEAT_S", 0.0001)
    monkeypatch.setattr(measure, "_WARMUP_S", {"cpu": 0.0})
    monkeypatch.setattr(conditions, "_CPU_WATCH_S", 0.01)
    monkeypatch.setattr(measure, "_array_bytes", lambda device: 2**16)
    monkeypatch.setattr(launch, "_REPEATS", 3)
    monkeypatch.setattr(launch, "_CALLS", 5)


@pytest.mark.usefixtures("_small")
def test_a_cpu_has_a_compute_ceiling_per_precision_and_a_dram_ceiling_per_stream() -> None:
    told: list[str] = []
    result = measure.calibrate(CPU, told.append)
    assert [c.name for c in result.ceilings if c.kind == "memory"] == [
        "DRAM copy",
        "DRAM triad",
        "DRAM read",
    ]
    precisions = [c.precision for c in result.ceilings if c.kind == "compute"]
    assert precisions[:2] == ["fp32", "fp64"]
    assert all(c.rate > 0 and c.spread >= 0 for c in result.ceilings)
    assert result.threads == torch.get_num_threads()
    assert "GEMM fp32" in told
    (cost,) = result.launch_costs
    assert (cost.what, cost.device_ns, cost.repeats) == ("torch operator", None, 3)
    assert 0 < cost.host_ns <= cost.host_median_ns
    assert any("the CPU was" in sentence for sentence in result.conditions)


@pytest.mark.usefixtures("_small")
def test_a_precision_that_cannot_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    working = gemm.make_gemm

    def without_bf16(
        device: str, precision: str, size: int, layout: gemm.Layout | None = None
    ) -> Call:
        if precision == "bf16":
            raise RuntimeError('"addmm_impl_cpu_" not implemented for BFloat16')
        return working(device, precision, size, layout)

    monkeypatch.setattr(gemm, "make_gemm", without_bf16)
    result = measure.calibrate(CPU)
    assert [c.precision for c in result.ceilings if c.kind == "compute"] == ["fp32", "fp64"]
    assert result.left_out == ("GEMM bf16: not on this device, or emulated",)


@pytest.mark.usefixtures("_small")
def test_an_emulated_precision_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "time_call", lambda call, cuda: 10.0)
    result = measure.calibrate(CPU)
    assert not [c for c in result.ceilings if c.kind == "compute"]


@pytest.mark.usefixtures("_small")
def test_the_programs_random_numbers_and_settings_are_left_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    before = torch.get_float32_matmul_precision(), torch.is_grad_enabled()
    measure.calibrate(CPU)
    assert torch.equal(torch.rand(3), expected)
    assert (torch.get_float32_matmul_precision(), torch.is_grad_enabled()) == before


def test_other_work_on_the_machine_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "_cpu_busy_percent", lambda: 61.0)
    assert conditions.idle_condition(CPU).startswith("not idle: the CPU was 61 % busy")
    monkeypatch.setattr(conditions, "_cpu_busy_percent", lambda: 3.0)
    assert conditions.idle_condition(CPU) == "idle before: the CPU was 3 % busy"
    monkeypatch.setattr(conditions, "_cpu_busy_percent", lambda: None)
    assert conditions.idle_condition(CPU).startswith("not known to be idle")


def test_the_busy_share_is_what_passed_while_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "stat"
    file.write_text("cpu 100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n")
    # 75 of the next 100 ticks are not idle.
    later = "cpu 150 0 120 715 110 0 0 5 0 0\n"
    monkeypatch.setattr(conditions.time, "sleep", lambda seconds: file.write_text(later))
    assert conditions._cpu_busy_percent(file) == pytest.approx(75.0)


def test_streams_count_each_array_once() -> None:
    streams = {stream.name: stream.amount for stream in make_streams("cpu", 4096)}
    assert streams == {"DRAM copy": 8192, "DRAM triad": 12288, "DRAM read": 4096}


def test_streams_do_what_they_say() -> None:
    copy, triad, read = make_streams("cpu", 4096)
    copied, summed = copy.call(), triad.call()
    assert isinstance(copied, torch.Tensor)
    # All write to the same array: the triad's result has replaced the copy's.
    assert copied is summed
    assert isinstance(read.call(), torch.Tensor)


@pytest.mark.parametrize(
    ("limit", "available"), [("max\n", 1000 * 1024), ("500000\n", 400_000), (None, 1000 * 1024)]
)
def test_memory_is_bounded_by_the_container_too(
    tmp_path: Path, limit: str | None, available: int
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    1000 kB\n")
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text("100000\n")
    assert conditions.available_memory_bytes(meminfo, tmp_path) == available


def test_arrays_leave_the_cache_behind_or_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large_cache = Device(index=0, kind="cpu", name="A CPU", l2_cache_bytes=2**30)
    monkeypatch.setattr(measure, "available_memory_bytes", lambda: 2**40)
    size = measure._array_bytes(large_cache)
    assert size is not None
    assert 3 * size >= 4 * 2**30
    monkeypatch.setattr(measure, "available_memory_bytes", lambda: 2**31)
    assert measure._array_bytes(large_cache) is None


def test_repeats_are_batches_of_at_least_the_asked_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]

    def call() -> None:
        now[0] += 0.01

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    seconds = timing.time_repeats(call, cuda=False, repeats=3, repeat_s=0.05, warmup_s=0.2)
    assert seconds == pytest.approx((0.01, 0.01, 0.01))
    # First call, one timed call, 20 to warm up, 3 x 5 measured.
    assert now[0] == pytest.approx(0.37)


def test_bursts_are_apart_and_each_is_warmed_by_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def events(call: Call, repeats: int, calls: int) -> tuple[float, ...]:
        done.append(f"{repeats} x {calls} timed")
        return (0.004,) * repeats

    monkeypatch.setattr(timing, "_time_by_events", events)
    monkeypatch.setattr(timing, "_synchronize", lambda cuda: None)
    monkeypatch.setattr(timing, "time_call", lambda call, cuda: 0.004)
    monkeypatch.setattr(timing.time, "sleep", lambda seconds: done.append(f"idle {seconds} s"))
    seconds = timing.time_bursts(lambda: done.append("call"), repeats=2, burst_s=0.01, pause_s=0.1)
    assert seconds == (0.004, 0.004)
    burst = ["idle 0.1 s", "call", "1 x 3 timed"]
    assert done == ["call", *burst, *burst]


def samples(**columns: int) -> pl.DataFrame:
    return schema.conform("samples", pl.DataFrame([{"device": 0, "time_ns": 1, **columns}]))


def test_a_power_cap_is_told_and_a_fault_is_a_warning() -> None:
    bits = {name: bit for bit, name in SLOWDOWN_REASONS.items()}
    capped = samples(
        sm_clock_mhz=1380,
        temperature_celsius=61,
        power_milliwatts=700_000,
        throttle_reasons=bits["software power cap"],
    )
    assert conditions.warm_conditions(capped, 7.05e14) == (
        "warm: fp16 products sustained 705 TFLOP/s for a second, SM clock 1380 MHz, 61 °C, 700 W, "
        "software power cap",
    )
    hot = samples(throttle_reasons=bits["hardware thermal slowdown"])
    assert conditions.warm_conditions(hot, 1e14)[1] == (
        "throttled (hardware thermal slowdown), so figures may be low"
    )


def test_the_clock_while_measuring_is_noted_where_it_is_known() -> None:
    capped = next(bit for bit, name in SLOWDOWN_REASONS.items() if name == "software power cap")
    seen = samples(sm_clock_mhz=1980, throttle_reasons=capped)
    assert conditions.clock_and_slowdowns(seen) == (1980, ("software power cap",))
    assert conditions.clock_and_slowdowns(samples()) == (None, ())


def test_the_on_chip_kernels_compile() -> None:
    try:
        program = on_chip.compile_on_chip("sm_90a")
    except MissingDependencyError as error:
        pytest.skip(str(error))
    for name in (b"fused_multiply_adds_fp64", b"read_l2", b"read_shared", b"nothing"):
        assert name in program.code


class FakeNvml:
    """Two of three GPUs joined by NVLink."""

    class NVMLError(Exception):
        pass

    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0

    def nvmlDeviceGetP2PStatus(self, first: str, second: str, index: int) -> int:
        assert index == 2
        return 0 if {first, second} == {"a", "b"} else 5

    def nvmlShutdown(self) -> None:
        pass


def test_links_lead_to_the_host_and_to_each_peer_that_can_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def empty(size: int, **_: object) -> torch.Tensor:
        return torch.zeros(4, dtype=torch.uint8)

    fake = SimpleNamespace(
        uint8=torch.uint8,
        empty=empty,
        empty_like=lambda tensor, device: torch.zeros(4, dtype=torch.uint8),
        cuda=SimpleNamespace(
            device_count=lambda: 4, can_device_access_peer=lambda index, peer: peer != 3
        ),
    )
    monkeypatch.setattr(links, "torch", fake)
    monkeypatch.setattr(links, "ask", lambda question: question(FakeNvml()))
    monkeypatch.setattr(links, "visible_handles", lambda library: dict(enumerate("abcd")))
    probes = list(links.make_link_probes(0))
    assert [(probe.name, probe.level) for probe in probes] == [
        ("PCIe h2d", "PCIe h2d"),
        ("PCIe d2h", "PCIe d2h"),
        ("NVLink to cuda:1", "NVLink"),
        ("peer to cuda:2", "peer"),
    ]
    assert {(probe.kind, probe.amount) for probe in probes} == {("link", 256 * 2**20)}
    for probe in probes:
        probe.call()
