"""Calibration on the CPU at small sizes: what is measured, refused, left out, and left alone."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

torch = pytest.importorskip("torch")

from gpuprof.collectors import schema  # noqa: E402
from gpuprof.collectors.errors import MissingDependencyError  # noqa: E402
from gpuprof.collectors.live.cpu_caches import (  # noqa: E402
    CacheLevel,
    cache_levels,
    usable_core_numbers,
)
from gpuprof.collectors.live.nvml.sampler import NvmlSampler  # noqa: E402
from gpuprof.collectors.live.nvml.slowdowns import SLOWDOWN_REASONS  # noqa: E402
from gpuprof.collectors.live.run_delay import process_run_delay_ns  # noqa: E402
from gpuprof.collectors.manifest import Device  # noqa: E402
from gpuprof.reference_kernels.calibration import (  # noqa: E402
    conditions,
    cpu,
    gemm,
    launch,
    links,
    measure,
    on_chip,
    timing,
)
from gpuprof.reference_kernels.calibration.probe import Call  # noqa: E402
from gpuprof.reference_kernels.calibration.stream import (  # noqa: E402
    make_memory_probes,
    make_streams,
)
from gpuprof.reference_kernels.calibration.undisturbed import (  # noqa: E402
    Repeats,
    undisturbed_repeats,
)

CPU = Device(index=0, kind="cpu", name="A CPU", multiprocessors=2, l2_cache_bytes=2**20)


def quiet(call: Call, patience_s: float) -> Repeats:
    """What a quiet machine gives: repeats that agree, of a call that was made."""
    call()
    return Repeats((1.0, 1.01, 1.02, 1.2, 1.0), 0)


def busy(call: Call, patience_s: float) -> Repeats:
    """What a busy machine gives: nothing that counts."""
    return Repeats((), 12)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_GEMM_SIZES", (16, 32))
    monkeypatch.setattr(cpu, "_TOO_SLOW_S", 2.0)
    monkeypatch.setattr(cpu, "_LONGEST_S", 10.0)
    monkeypatch.setattr(cpu, "_WARMING_S", 0.0)
    monkeypatch.setattr(cpu, "_LEAST_MEMORY_BYTES", 2**16)
    levels = (CacheLevel(1, (512,)), CacheLevel(2, (2048,)), CacheLevel(3, (4096,)))
    monkeypatch.setattr(cpu, "cache_levels", lambda: levels)
    monkeypatch.setattr(launch, "_REPEATS", 3)
    monkeypatch.setattr(launch, "_CALLS", 5)


def ignore(stage: str) -> None:
    pass


@pytest.mark.usefixtures("_small")
def test_a_cpu_has_ceilings_of_products_and_of_each_level_of_memory() -> None:
    told: list[str] = []
    found = cpu.cpu_ceilings(told.append, quiet)
    assert (found.left_out, found.refused) == ([], [])
    assert [c.name for c in found.ceilings] == [
        *("GEMM fp32", "GEMM fp64", "GEMM bf16"),
        *("L2 in-place", "L2 read", "L2 triad", "L3 in-place", "L3 read", "L3 triad"),
        *("DRAM in-place", "DRAM read", "DRAM copy", "DRAM triad"),
    ]
    assert {"GEMM fp32", "L2", "DRAM triad"} <= set(told)
    # The fastest repeat, of a second, of the larger product: 2 x 32^3 operations.
    product = found.ceilings[0]
    assert (product.rate, product.method) == (65536, "32 x 32, random data")
    assert product.spread == pytest.approx((1 - 1 / 1.2) / (1 / 1.01))
    rates = {c.name: (c.rate, c.capacity_bytes) for c in found.ceilings if c.kind == "memory"}
    # Half of what the level holds, read and written.
    assert rates["L2 in-place"] == (2 * 1024, 2048)
    assert rates["L3 read"] == (2048, 4096)
    assert rates["L2 triad"] == (3 * 4 * 80, 2048)
    # A call takes a part of each array, of 24 parts in all.
    array = 2**16 // 4 // 24 * 4
    assert rates["DRAM in-place"] == (2 * array, None)
    assert rates["DRAM triad"] == (3 * array, None)
    methods = {c.name: c.method for c in found.ceilings}
    # What the kernel names, and beside it what moves where a cache reads a line before writing it.
    assert methods["DRAM triad"].endswith(f"; {4 * array / 1e9:.3g} GB/s with the write-allocate")
    assert methods["DRAM copy"].endswith(f"; {3 * array / 1e9:.3g} GB/s with the write-allocate")
    assert "allocate" not in methods["DRAM in-place"] + methods["DRAM read"]


@pytest.mark.usefixtures("_small")
def test_a_busy_machine_has_no_ceilings_and_is_not_waited_for_long() -> None:
    patience: list[float] = []

    def measure(call: Call, patience_s: float) -> Repeats:
        patience.append(patience_s)
        return busy(call, patience_s)

    found = cpu.cpu_ceilings(ignore, measure)
    assert found.ceilings == []
    assert len(found.refused) == len(patience) == 13
    assert (found.repeats, found.disturbed) == (13 * 12, 13 * 12)
    assert patience[0] > patience[1] == patience[-1]


@pytest.mark.usefixtures("_small")
def test_a_product_is_refused_where_one_of_its_sizes_is() -> None:
    # The small product alone would be a ceiling that is too low.
    calls = iter([quiet, busy])
    found = cpu.cpu_ceilings(ignore, lambda call, s: next(calls, quiet)(call, s))
    assert found.refused == ["GEMM fp32"]
    assert "GEMM fp32" not in [c.name for c in found.ceilings]
    assert "GEMM fp64" in [c.name for c in found.ceilings]


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("third_s", "refused"), [(8.1, []), (7.4, ["GEMM fp32"])])
def test_a_large_product_is_left_out_where_smaller_ones_show_that_it_is_no_faster(
    monkeypatch: pytest.MonkeyPatch, third_s: float, refused: list[str]
) -> None:
    monkeypatch.setattr(cpu, "_GEMM_SIZES", (16, 32, 64, 128))
    monkeypatch.setattr(cpu, "_LONGEST_S", 1000.0)
    # Twice the size, eight times the work: the rate grows to the second size, and there levels
    # off, or does not. The fourth size is too long for the other programs.
    seconds = iter([0.2, 1.0, third_s])

    def measure(call: Call, patience_s: float) -> Repeats:
        found = next(seconds, None)
        return Repeats((), 9) if found is None else Repeats((found,) * 5, 0)

    found = cpu.CpuCeilings()
    cpu._add_products(found, "fp32", measure)
    assert found.refused == refused
    assert [c.method[:2] for c in found.ceilings] == ([] if refused else ["32"])


@pytest.mark.usefixtures("_small")
def test_the_fastest_size_is_the_ceiling_and_slow_ones_are_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu, "_GEMM_SIZES", (16, 32, 64, 128))
    monkeypatch.setattr(cpu, "_LONGEST_S", 1.0)
    seconds = iter([0.01, 0.01, 0.2])
    found = cpu.CpuCeilings()
    measure = lambda call, patience_s: Repeats((next(seconds),) * 5, 0)  # noqa: E731
    cpu._add_products(found, "fp32", measure)
    # 128 would take 8 x 0.2 s; of the others 32 is fastest.
    assert [(c.rate, c.method[:2]) for c in found.ceilings] == [(2 * 32**3 / 0.01, "32")]


@pytest.mark.usefixtures("_small")
def test_a_calibration_of_the_cpu_says_its_threads_and_what_others_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure, "cpu_ceilings", lambda progress: cpu.cpu_ceilings(progress, quiet))
    monkeypatch.setattr(conditions.OtherWork, "share", lambda self: 0.37)
    result = measure.calibrate(CPU)
    assert result.threads == torch.get_num_threads()
    assert (result.other_work, result.ceilings[0].other_work) == (0.37, 0.37)
    assert result.ceilings[0].measured_ns
    (cost,) = result.launch_costs
    assert (cost.what, cost.device_ns, cost.repeats) == ("torch operator", None, 3)
    assert 0 < cost.host_ns <= cost.host_median_ns
    assert result.conditions[0] == (
        "busy, so figures may be low: other programs used 37% of the CPU meanwhile"
    )
    assert result.conditions[1].startswith("other programs had a core in 0 of ")


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
    found = cpu.cpu_ceilings(ignore, quiet)
    assert [c.precision for c in found.ceilings if c.kind == "compute"] == ["fp32", "fp64"]
    assert found.left_out == ["GEMM bf16: not on this device, or emulated"]


@pytest.mark.usefixtures("_small")
def test_an_emulated_precision_is_left_out() -> None:
    slow = lambda call, patience_s: Repeats((10.0,) * 5, 0)  # noqa: E731
    found = cpu.cpu_ceilings(ignore, slow)
    assert not [c for c in found.ceilings if c.kind == "compute"]
    assert len(found.left_out) == 3


@pytest.mark.usefixtures("_small")
def test_the_programs_random_numbers_and_settings_are_left_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    before = torch.get_float32_matmul_precision(), torch.is_grad_enabled()
    measure.calibrate(CPU)
    assert torch.equal(torch.rand(3), expected)
    assert (torch.get_float32_matmul_precision(), torch.is_grad_enabled()) == before


class Machine:
    """A clock that a call moves on, and others who may have the core in it."""

    def __init__(
        self, lost_s: Iterator[float], *, counts: bool = True, call_s: float = 0.002
    ) -> None:
        self.now = 0.0
        self.waited_ns = 0
        self.lost_s = lost_s
        self.counts = counts
        self.call_s = call_s

    def call(self) -> None:
        lost_s = next(self.lost_s)
        self.now += self.call_s + lost_s
        self.waited_ns += round(lost_s * 1e9)

    def repeats(self, patience_s: float) -> Repeats:
        return undisturbed_repeats(
            self.call,
            patience_s,
            clock=lambda: self.now,
            run_delay_ns=lambda: self.waited_ns if self.counts else None,
        )


@pytest.mark.parametrize(("call_s", "repeats", "calls"), [(0.002, 15, 15), (0.1, 5, 5)])
def test_on_a_quiet_machine_30_ms_or_five_repeats_are_enough(
    call_s: float, repeats: int, calls: int
) -> None:
    machine = Machine(itertools.repeat(0.0), call_s=call_s)
    found = machine.repeats(10.0)
    assert found.agree
    assert found == Repeats(pytest.approx((call_s,) * repeats), 0)
    # A first call, one that shows how long it is, and the repeats.
    assert machine.now == pytest.approx(call_s * (2 + calls))


def test_a_repeat_in_which_others_had_a_core_does_not_count() -> None:
    found = Machine(itertools.cycle([0.0, 0.004, 0.0, 0.05])).repeats(10.0)
    assert found.agree
    assert found.seconds == pytest.approx((0.002,) * 15)
    assert found.disturbed >= 4


def test_a_wait_that_does_not_lengthen_a_repeat_is_tolerated() -> None:
    assert Machine(itertools.repeat(0.000_019)).repeats(10.0).disturbed == 0
    assert Machine(itertools.repeat(0.000_021)).repeats(0.1).agree is False


def test_on_a_busy_machine_patience_ends() -> None:
    machine = Machine(itertools.repeat(0.01))
    found = machine.repeats(0.5)
    assert (found.agree, found.seconds) == (False, ())
    assert 0.5 < machine.now < 0.6
    # At least eight are tried, however long they take.
    assert Machine(itertools.repeat(1.0)).repeats(0.5).disturbed == 8


def test_where_waiting_is_not_counted_repeats_must_agree() -> None:
    steady = Machine(itertools.repeat(0.001), counts=False).repeats(0.5)
    assert (steady.agree, steady.disturbed) == (True, 0)
    wild = Machine((0.001 * 1.1**k for k in range(1000)), counts=False).repeats(0.5)
    assert not wild.agree


def test_the_share_of_others_is_what_the_cores_did_without_this_process(tmp_path: Path) -> None:
    cores = usable_core_numbers()
    file = tmp_path / "stat"

    def write(busy: int, idle: int) -> None:
        # A core that is not ours is not looked at.
        lines = ["cpu 9 9 9 9 9 9 9 9 0 0", f"cpu{max(cores) + 1} 9999 0 0 0 0 0 0 0 0 0"]
        lines += [f"cpu{core} {busy} 0 0 {idle} 0 0 0 0 0 0" for core in cores]
        file.write_text("\n".join(lines))

    seconds_of_ours = iter([1.0, 1.0 + len(cores) * 0.25])
    write(100, 100)
    others = conditions.OtherWork(file, lambda: next(seconds_of_ours))
    # Of a second, each core worked for 0.75, of which 0.25 for this process.
    ticks = os.sysconf("SC_CLK_TCK")
    write(100 + ticks * 3 // 4, 100 + ticks // 4)
    assert others.share() == pytest.approx(0.5)


def test_what_others_did_is_unknown_where_the_system_does_not_tell(tmp_path: Path) -> None:
    assert conditions.OtherWork(tmp_path / "absent").share() is None
    sentence = conditions.other_work_sentence(None, "the CPU", "meanwhile")
    assert sentence.startswith("not known to be idle")
    assert conditions.other_work_sentence(0.03, "the GPU", "just before") == (
        "idle: other programs used 3% of the GPU just before"
    )


def test_streams_count_each_array_once() -> None:
    streams = {stream.name: stream.amount for stream in make_streams("cpu", 4096)}
    assert streams == {"DRAM copy": 8192, "DRAM triad": 12288, "DRAM read": 4096}
    probes = {probe.name: (probe.amount, probe.allocated) for probe in make_memory_probes(6144)}
    assert probes == {
        "DRAM in-place": (512, 0),
        "DRAM read": (256, 0),
        "DRAM copy": (512, 256),
        "DRAM triad": (768, 256),
    }


def test_streams_do_what_they_say() -> None:
    copy, triad, read = make_streams("cpu", 4096)
    copied, summed = copy.call(), triad.call()
    assert isinstance(copied, torch.Tensor)
    # All write to the same array: the triad's result has replaced the copy's.
    assert copied is summed
    assert isinstance(read.call(), torch.Tensor)


def test_a_call_on_main_memory_takes_the_next_part_of_each_array() -> None:
    in_place, _, copy, triad = (probe.call for probe in make_memory_probes(6144))
    parts: list[Any] = [in_place() for _ in range(25)]
    begin = parts[0].data_ptr()
    places = [part.data_ptr() - begin for part in parts]
    assert places == [256 * index for index in (*range(24), 0)]
    # The second half is the target, and of three thirds the last.
    copies: list[Any] = [copy() for _ in range(13)]
    assert [each.data_ptr() - begin for each in copies] == [256 * i for i in (*range(12, 24), 12)]
    assert all(torch.equal(copied, part) for copied, part in zip(copies, parts[:12], strict=False))
    sums: list[Any] = [triad() for _ in range(9)]
    assert [each.data_ptr() - begin for each in sums] == [256 * i for i in (*range(16, 24), 16)]
    assert torch.allclose(sums[0], parts[0] + 3 * parts[8])


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


def test_arrays_leave_the_caches_behind_or_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    levels = (CacheLevel(2, (2**20,) * 8), CacheLevel(3, (2**29, 2**29)))
    monkeypatch.setattr(cpu, "available_memory_bytes", lambda: 2**40)
    assert cpu._memory_bytes(levels) == 4 * 2**30
    assert cpu._memory_bytes(()) == 384 * 2**20
    monkeypatch.setattr(cpu, "available_memory_bytes", lambda: 2**31)
    assert cpu._memory_bytes(levels) is None


def test_a_thread_is_near_to_one_cache_of_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = (
        CacheLevel(1, (48, 48, 32, 32)),
        CacheLevel(2, (2000, 2000, 1000)),
        CacheLevel(3, (9000,)),
    )
    reached = {}
    for threads in (1, 2, 64):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        reached[threads] = dict(cpu._reached_caches(levels))
    assert reached == {
        1: {"L2": 2000, "L3": 9000},
        2: {"L2": 4000, "L3": 9000},
        64: {"L2": 5000, "L3": 9000},
    }
    # A level that holds no more than the one before it is none to compare work with.
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert dict(cpu._reached_caches((CacheLevel(2, (512,) * 4), CacheLevel(3, (1024,))))) == {
        "L2": 2048
    }


def test_caches_are_counted_once_each(tmp_path: Path) -> None:
    cores = usable_core_numbers()
    for core in cores:
        for index, (level, kind, size, sharers) in enumerate(
            (
                (1, "Data", "48K", str(core)),
                (1, "Instruction", "32K", str(core)),
                (2, "Unified", "2M", str(core)),
                (3, "Unified", "32768K", "0-127"),
            )
        ):
            folder = tmp_path / f"cpu{core}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, value in (
                ("level", str(level)),
                ("type", kind),
                ("size", size),
                ("shared_cpu_list", sharers),
            ):
                (folder / name).write_text(f"{value}\n")
    assert cache_levels(tmp_path) == (
        CacheLevel(1, (48 * 1024,) * len(cores)),
        CacheLevel(2, (2 * 2**20,) * len(cores)),
        CacheLevel(3, (32 * 2**20,)),
    )
    assert cache_levels(tmp_path / "absent") == ()


def test_bursts_are_apart_and_each_is_warmed_by_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def events(call: Call, repeats: int, calls: int) -> tuple[float, ...]:
        done.append(f"{repeats} x {calls} timed")
        return (0.004,) * repeats

    monkeypatch.setattr(timing, "_time_by_events", events)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(timing, "time_call", lambda call: 0.004)
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


def test_without_nvml_the_clock_is_unknown_and_the_measurement_goes_on() -> None:
    sampler = NvmlSampler([0], library=None)
    nothing = conditions.stop_sampling(sampler)
    assert conditions.clock_and_slowdowns(nothing) == (None, ())
    assert conditions.warm_conditions(nothing, 1e12) == (
        "warm: fp16 products sustained 1 TFLOP/s for a second",
    )


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


def test_the_run_delay_of_the_process_is_that_of_all_its_threads(tmp_path: Path) -> None:
    for thread, text in (("11", "900 40 3\n"), ("12", "5 2 1\n")):
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(text)
    # One that ended since the folder was read.
    (tmp_path / "13").mkdir()
    assert process_run_delay_ns(str(tmp_path)) == 42
    (tmp_path / "12" / "schedstat").write_text("damaged\n")
    assert process_run_delay_ns(str(tmp_path)) is None
    assert process_run_delay_ns(str(tmp_path / "absent")) is None


def test_a_kernel_that_keeps_no_count_is_no_quiet_machine(tmp_path: Path) -> None:
    (tmp_path / "11").mkdir()
    assert process_run_delay_ns(str(tmp_path)) is None
