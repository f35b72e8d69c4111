"""What a bench hands on: its capture, its rates and its table."""

from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
import torch
from rich.console import Console

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.live.fingerprint import cpu_device
from gpuprof.collectors.manifest import Calibration, Device, Fingerprint, MeasuredCeiling
from gpuprof.profiler.bench.capture import PROFILED_CALLS, make_capture, profile_case
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.reference_kernels.families import load_family
from gpuprof.reference_kernels.stream.problem import Stream
from gpuprof.reports.bench.table import print_bench
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.bench.rates import library_time, rates, roofs_of
from gpuprof.roofline.bench.results import (
    BenchReport,
    CaseResult,
    Method,
    Skipped,
    Sustained,
)
from gpuprof.roofline.cost_models.cost import Flops

H100 = Device(
    index=0,
    kind="cuda",
    name="NVIDIA H100 80GB HBM3",
    total_memory_bytes=85_029_158_912,
    multiprocessors=132,
)
ALONE = Ranks(0, 0, 1)


def report(*cases: CaseResult, device: Device = H100, **fields: Any) -> BenchReport:
    method = Method(
        clock="CUDA events" if device.kind != "cpu" else "host clock",
        flushed_bytes=209_715_200 if device.kind != "cpu" else None,
        confidence=0.95,
        precision=0.005,
        budget_s=1,
        seed=42,
    )
    return BenchReport(
        tool_version="0",
        created_ns=1,
        device=device,
        fingerprint=Fingerprint(devices=(device,), torch="2.13.0"),
        method=method,
        cases=cases,
        **fields,
    )


def gemm(version: str, time_ns: int | None, **fields: Any) -> CaseResult:
    """A bf16 product of 4096 cubed: 137.4 GFLOP, 100.7 MB."""
    known = {
        "family": "gemm",
        "version": version,
        "size": "4096x4096x4096",
        "dtype": "bf16",
        "flops": (Flops("matmul", "bf16", 2 * 4096**3),),
        "bytes_read": 2 * 2 * 4096**2,
        "bytes_written": 2 * 4096**2,
        "relative_error": 1e-3,
        "tolerance": 4e-3,
    }
    if time_ns is not None:
        known |= {
            "median_ns": time_ns,
            "lower_ns": time_ns - 1000,
            "upper_ns": time_ns + 500,
            "precise": True,
            "samples_ns": (time_ns,) * 10,
            "host_samples_ns": (5000,) * 10,
        }
    return CaseResult(**{**known, **fields})


def printed(of: BenchReport, width: int = 120) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))
    print_bench(of, console)
    console.file.close()
    return console.export_text()


# -- rates and table -------------------------------------------------------------------------------


def test_rates_are_of_the_definition_and_shares_of_the_executed_work() -> None:
    # 137.44 GFLOP in 200 us: 687 TFLOP/s, 69.5 % of 989.4. Half of them executed: 34.7 %.
    roofs = roofs_of(report())
    direct = rates(gemm("cublas", 200_000), roofs)
    assert direct is not None
    assert direct.flops_per_s == pytest.approx(687.2e12, rel=1e-4)
    assert direct.of_datasheet == pytest.approx(0.6946, rel=1e-3)
    assert direct.of_measured is None
    half = (Flops("matmul", "bf16", 4096**3),)
    fewer = rates(gemm("strassen", 200_000, executed_flops=half), roofs)
    assert fewer is not None
    assert fewer.flops_per_s == direct.flops_per_s
    assert fewer.executed_flops_per_s == pytest.approx(343.6e12, rel=1e-4)
    assert fewer.of_datasheet == pytest.approx(0.3473, rel=1e-3)


def test_bus_bandwidth_is_held_against_the_link_in_one_direction() -> None:
    case = gemm("nccl", 1_000_000, bus_bytes=360_000_000, flops=())
    reached = rates(case, roofs_of(report()))
    assert reached is not None
    assert (reached.is_bus_bandwidth, reached.of_datasheet) == (True, None)
    assert reached.bytes_per_s == pytest.approx(360e9)
    assert reached.of_link == pytest.approx(0.8)


def test_the_fastest_library_version_of_the_same_problem_counts() -> None:
    cases = [
        gemm("triton-tiled", 190_000),
        gemm("cublas", 210_000),
        gemm("torch", 200_000),
        gemm("cublas", 10, size="1x1x1"),
    ]
    found = library_time(cases[0], cases)
    assert found is not None
    assert found.version == "torch"


def test_the_table_shows_rates_shares_and_the_library() -> None:
    calibration = Calibration(
        device=H100,
        torch="2.13.0",
        threads=None,
        measured_ns=0,
        ceilings=(
            MeasuredCeiling(
                kind="compute", name="", rate=760e12, spread=0, repeats=1, precision="bf16"
            ),
            MeasuredCeiling(kind="memory", name="", rate=3e12, spread=0, repeats=1, level="DRAM"),
        ),
    )
    text = printed(
        report(gemm("cublas", 200_000), gemm("triton-tiled", 250_000), calibration=calibration)
    )
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert "gemm 4096x4096x4096 bf16: 137 GFLOP, 101 MB" in text
    # 137.4 GFLOP / 760 TFLOP/s = 180.8 us: 90.4 % of 200 us, 72.3 % of 250 us.
    cublas, triton = " ".join(lines["cublas"]), " ".join(lines["triton-tiled"])
    assert cublas == "cublas 200.0 µs 0.5% 687 TFLOP/s 503 GB/s 69.5% 90.4% library"
    assert triton == "triton-tiled 250.0 µs 0.4% 550 TFLOP/s 403 GB/s 55.6% 72.3% 80.0%"
    assert "L2 is flushed (210 MB written, then read)" in text


def test_ceilings_of_a_busy_machine_are_said_to_be_that() -> None:
    ceiling = MeasuredCeiling(
        kind="compute", name="GEMM bf16", rate=760e12, spread=0, repeats=1, precision="bf16"
    )
    quiet = Calibration(
        device=H100,
        torch="2.13.0",
        threads=None,
        measured_ns=0,
        ceilings=(ceiling,),
        other_work=0.02,
    )
    crowded = msgspec.structs.replace(quiet, other_work=0.6)
    texts = [printed(report(gemm("cublas", 200_000), calibration=c)) for c in (quiet, crowded)]
    assert ["may be too low" in text for text in texts] == [False, True]
    assert "60% of the device" in texts[1]


def test_effective_and_executed_flops_are_labelled() -> None:
    half = (Flops("matmul", "bf16", 4096**3),)
    text = printed(report(gemm("cublas", 200_000), gemm("fft", 100_000, executed_flops=half)))
    assert "effective" in text
    assert "executed" in text
    assert "1.37 PFLOP/s" in text
    assert "687 TFLOP/s" in text


@pytest.mark.parametrize("width", [60, 72, 80, 100, 140])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_ones(width: int) -> None:
    half = (Flops("matmul", "bf16", 4096**3),)
    versions = (gemm("cublas", 200_000), gemm("triton-persistent", 100_000, executed_flops=half))
    lines = printed(report(*versions), width).splitlines()
    (head,) = [line for line in lines if line.strip().startswith("version")]
    assert head.split()[1] == "time"
    assert head.split()[-1] == "library"
    (row,) = [line for line in lines if line.strip().startswith("triton-persistent")]
    assert row.split()[-1] == "200.0%"
    assert max(len(line.rstrip()) for line in lines) <= width


def test_a_share_over_the_roof_is_marked_and_not_clipped() -> None:
    assert "139%!" in printed(report(gemm("cublas", 100_000)))


def test_a_wrong_version_has_no_time_in_the_table() -> None:
    text = printed(
        report(gemm("cublas", None, error="wrong: relative error 1", relative_error=1.0))
    )
    (row,) = [line for line in text.splitlines() if line.strip().startswith("cublas")]
    assert row.split() == ["cublas", "wrong"]
    assert "gemm/cublas 4096x4096x4096 bf16: wrong: relative error 1" in text


def test_what_was_left_out_is_told_once_with_its_reason() -> None:
    reason = "gemm/cuda-naive needs cuda-core: pip install"
    skipped = [Skipped("gemm/cuda-naive", size, "bf16", reason) for size in ("1", "2")]
    skipped.append(
        Skipped("norm/cuda", "1", "bf16", reason.replace("gemm/cuda-naive", "norm/cuda"))
    )
    text = printed(report(gemm("cublas", 200_000), skipped=tuple(skipped)))
    assert text.count("Left out") == 1
    assert "Left out, needs cuda-core: pip install: gemm/cuda-naive, norm/cuda" in text


def test_a_call_that_the_host_starts_slower_than_the_device_works_is_pointed_out() -> None:
    slow = gemm("cublas", 4_000)
    assert slow.host_bound
    assert "the host took longer" in printed(report(slow))
    assert not gemm("cublas", 200_000).host_bound


def test_clocks_and_slow_downs_are_told() -> None:
    case = gemm("cublas", 200_000, sm_clock_mhz=1500, throttle_reasons=("software power cap",))
    text = printed(report(case, gemm("torch", 200_000, sm_clock_mhz=1980)))
    assert "SM clock: 1500 to 1980 MHz; slowed down by: software power cap." in text


def test_sustained_calls_have_a_column_and_a_clock_of_their_own() -> None:
    # 137.44 GFLOP in 220 us: 624.7 TFLOP/s, where single calls reach 687.
    row = Sustained(
        call_ns=220_000,
        calls=1500,
        started_ns=0,
        ended_ns=1,
        sm_clock_mhz=1410,
        throttle_reasons=("software power cap",),
    )
    case = gemm("cublas", 200_000, sustained=row)
    text = printed(report(case, gemm("torch", 200_000)), width=160)
    assert "sustained" in text
    (line,) = (line for line in text.splitlines() if line.lstrip().startswith("cublas"))
    assert "687 TFLOP/s" in line
    assert "625 TFLOP/s" in line
    assert (
        "Sustained: 1500 to 1500 calls back to back, caches as the call before left them; "
        "SM clock 1410 to 1410 MHz, slowed down by: software power cap." in " ".join(text.split())
    )
    assert "ustained" not in printed(report(gemm("cublas", 200_000)), width=160)
    # Without FLOPs, bytes: 100.7 MB in 220 us.
    copied = rates(msgspec.structs.replace(case, flops=()), roofs_of(report()))
    assert copied is not None
    assert copied.sustained_flops_per_s is None
    assert copied.sustained_bytes_per_s == pytest.approx(3 * 2 * 4096**2 / 220e-6)


def test_the_json_of_a_bench_reads_back() -> None:
    whole = report(gemm("cublas", 200_000), skipped=(Skipped("a", "b", "c", "d"),))
    assert msgspec.json.decode(msgspec.json.encode(whole), type=BenchReport) == whole


# -- capture ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def capture() -> Capture:
    """The capture of two versions that were really profiled on the CPU, with made-up times."""
    device = cpu_device()
    version = load_family("stream").versions[0]
    profiled = []
    for kernel, times_ns in (("copy", (100, 200, 300)), ("triad", (1000, 2000))):
        problem = Stream(f"{kernel}:64KiB", "fp32", torch.device("cpu"))
        work = problem.work()
        result = CaseResult(
            family="stream",
            version="torch",
            size=problem.size,
            dtype="fp32",
            flops=work.flops,
            bytes_read=work.bytes_read,
            bytes_written=work.bytes_written,
            samples_ns=times_ns,
            started_ns=5,
            ended_ns=50,
        )
        prepared = version.prepare(problem)
        profiled.append(profile_case(result, prepared, lambda: None, lambda: None))
    return make_capture(
        report(*(one.result for one in profiled), device=device),
        profiled,
        {},
        ranks=ALONE,
        device_position=0,
        title="bench",
    )


def test_a_timed_step_is_the_sum_of_the_versions_calls(capture: Capture) -> None:
    timed = capture.steps.filter(pl.col("phase") == "timed")
    # As many as both have; on a CPU the host's clock is the only one.
    assert timed["host_ns"].to_list() == [1100, 2200]
    assert timed["device_ns"].null_count() == 2
    assert analyze(capture).steps.samples_ns == (1100, 2200)


def test_profiled_steps_follow_each_other_and_hold_one_call_of_each(capture: Capture) -> None:
    profiled = capture.steps.filter(pl.col("phase") == "profiled")
    assert profiled.height == PROFILED_CALLS
    assert profiled["start_ns"].to_list()[1:] == profiled["end_ns"].to_list()[:-1]
    inside = capture.kernels.group_by("step").agg(pl.col("name").sort())
    assert inside.height == PROFILED_CALLS
    for names in inside["name"].to_list():
        assert names == ["aten::add", "aten::copy_"]
    assert capture.ops["op_id"].n_unique() == capture.ops.height


def test_each_version_is_a_point_with_its_known_work(capture: Capture) -> None:
    points = {point.name: point for point in analyze(capture).ranges}
    assert set(points) == {"stream/torch copy:64KiB fp32", "stream/torch triad:64KiB fp32"}
    triad = points["stream/torch triad:64KiB fp32"]
    assert triad.calls == PROFILED_CALLS
    assert triad.flops == (Flops("vector", "fp32", PROFILED_CALLS * 2 * 16384),)
    assert triad.total_bytes == PROFILED_CALLS * 3 * 65536
    copy = points["stream/torch copy:64KiB fp32"]
    assert copy.flops == ()
    assert copy.total_bytes == PROFILED_CALLS * 2 * 65536


def test_the_capture_is_stored_and_read_back(capture: Capture, tmp_path: Path) -> None:
    storage.save(capture, tmp_path / "b.gpuprof")
    read = storage.load(tmp_path / "b.gpuprof")
    assert read.ranges.equals(capture.ranges)
    assert read.manifest.source == "gpuprof bench"
