"""`gpuprof bench` on a real GPU."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch

import gpuprof
from gpuprof.roofline.analysis import ANALYSIS_FILE, Analysis
from gpuprof.roofline.bench.results import BENCH_FILE, BenchReport

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_streams_and_a_product_are_checked_timed_and_placed_on_the_roofline(tmp_path: Path) -> None:
    capture = tmp_path / "b.gpuprof"
    command = [
        sys.executable,
        "-m",
        "gpuprof",
        "bench",
        "stream",
        "gemm/cublas",
        "--seconds",
        "0.3",
    ]
    subprocess.run([*command, "--dtype", "bf16", "-o", str(capture)], check=True, timeout=300)
    report = msgspec.json.decode((capture / BENCH_FILE).read_bytes(), type=BenchReport)
    assert report.method.clock == "CUDA events"
    assert report.cases != ()
    assert [case.label for case in report.cases if case.error] == []
    assert not any(case.host_bound for case in report.cases if case.family == "stream")
    analysis = msgspec.json.decode((capture / ANALYSIS_FILE).read_bytes(), type=Analysis)
    points = {point.name: point for point in analysis.ranges}
    assert set(points) == {case.label for case in report.cases}
    for case in report.cases:
        point = points[case.label]
        assert point.total_bytes == point.calls * case.bytes_moved
        # The profiler's kernels and the events around the call see the same work. The flush before
        # it is the same, too.
        if case.family == "stream":
            assert point.device_ns / point.calls == pytest.approx(case.median_ns, rel=0.05)


def test_a_function_of_a_user_is_timed_by_events_and_counted_by_its_operators() -> None:
    sizes = (512, 2048)
    timed = gpuprof.benchmark(
        {"matmul": torch.matmul, "twice": lambda a, b: (a @ b, a @ b)},
        sizes,
        # On the GPU, though nothing says so.
        inputs=lambda n: (torch.randn(n, n), torch.randn(n, n)),
        seconds=0.3,
    )
    assert timed.report.method.clock == "CUDA events"
    assert [one.error for one in timed.times] == [None] * 4
    for one in timed.times:
        products = 2 if one.function == "twice" else 1
        assert one.cost.flops == products * 2 * int(one.size) ** 3
    # A launch is no part of the larger product's time.
    single, double = (one.median_ns or 0 for one in timed.times[2:])
    assert double == pytest.approx(2 * single, rel=0.1)
