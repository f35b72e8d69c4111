"""The same work has one verdict: in the rows of kernels, operators and ranges, and in the step."""

from collections import Counter
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder
from recordings import analyses

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.points.kernel_verdicts import kernel_verdicts
from gpuprof.roofline.work.attribution import attribute

DATA = Path(__file__).parents[1] / "data"
RECORDED = sorted(
    (
        *(DATA / "captures").iterdir(),
        *(path for path in (DATA / "kineto").iterdir() if path.suffix in (".json", ".gz")),
        *(DATA / "nsys").glob("*.sqlite.gz"),
    )
)


def device_ns_by_class(points: tuple[RooflinePoint, ...]) -> Counter[str]:
    times: Counter[str] = Counter()
    for point in points:
        times[point.bottleneck.kind] += point.device_ns
    return times


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_kernel_and_operator_rows_agree(path: Path) -> None:
    for analysis in analyses(path):
        assert device_ns_by_class(analysis.kernels) == device_ns_by_class(analysis.ops)
        kinds_of: dict[tuple[str, str, str], set[str]] = {}
        for op in analysis.ops:
            key = (op.name, op.detail, op.phase)
            kinds_of.setdefault(key, set()).add(op.bottleneck.kind)
        for kernel in analysis.kernels:
            if kernel.op:
                owner = (kernel.op, kernel.op_detail, kernel.phase)
                assert kernel.bottleneck.kind in kinds_of[owner], kernel.name


def test_the_data_holds_something_to_agree_on() -> None:
    kinds: Counter[str] = Counter()
    for path in RECORDED:
        for analysis in analyses(path)[:1]:
            kinds += device_ns_by_class(analysis.ops)
    assert {"compute", "memory", "small", "cache", "few-blocks", "unknown"} <= set(kinds)


def the(points: tuple[RooflinePoint, ...], name: str) -> RooflinePoint:
    (found,) = (point for point in points if point.name == name)
    return found


def busy(build: CaptureBuilder) -> Capture:
    """A product on few blocks with a helper, one that fills the device, a copy; all in a range."""
    build.range("part", 0, 1000)
    build.mm(0, 50, 4096, 4096, 4096)
    build.kernel(10, 1_000, 1_481_000, "gemm", grid_x=16, grid_y=1, grid_z=1)
    build.kernel(20, 1_481_000, 1_501_000, "reduce", grid_x=4096, grid_y=1, grid_z=1)
    build.mm(100, 150, 2048, 4096, 4096)
    build.kernel(110, 1_600_000, 1_690_000, "gemm", grid_x=264, grid_y=1, grid_z=1)
    build.kernel(200, 2_000_000, 2_004_000, "Memcpy DtoD", kind="memcpy", bytes=4_000_000)
    build.step("profiled", 0, 3_000_000)
    return build.build()


def test_a_helper_has_the_class_of_its_operator_and_its_share_of_the_gain(
    build: CaptureBuilder,
) -> None:
    analysis = analyze(busy(build))
    kernels = [k for k in analysis.kernels if k.bottleneck.kind == "few-blocks"]
    assert {kernel.name for kernel in kernels} == {"gemm", "reduce"}
    (op,) = (op for op in analysis.ops if op.bottleneck.kind == "few-blocks")
    # 16 of 132 multiprocessors: the rest of 1500 us could be gone.
    assert op.bottleneck.gain_ns == pytest.approx(1_500_000 * (1 - 16 / 132), abs=2)
    gains = [kernel.bottleneck.gain_ns or 0 for kernel in kernels]
    assert sum(gains) == pytest.approx(op.bottleneck.gain_ns, abs=2)


def test_a_copy_without_an_operator_is_the_same_in_both_rows(build: CaptureBuilder) -> None:
    analysis = analyze(busy(build))
    (op,) = (op for op in analysis.ops if op.name == "(no operator)")
    kernel = the(analysis.kernels, "Memcpy DtoD")
    assert op.detail == "Memcpy DtoD"
    assert op.total_bytes == kernel.total_bytes == 8_000_000
    assert op.bottleneck == kernel.bottleneck
    assert kernel.bottleneck.kind == "memory"


def test_a_range_and_the_step_have_the_class_of_their_largest_loss(build: CaptureBuilder) -> None:
    analysis = analyze(busy(build))
    part = the(analysis.ranges, "part").bottleneck
    assert (part.kind, part.evidence) == (
        "few-blocks",
        "85% of its device time (1.36 ms): kernels have too few blocks for the device",
    )
    assert analysis.split is not None
    lost_ns = analysis.split.nanoseconds("few-blocks")
    assert lost_ns == pytest.approx(1_500_000 - 2 * 4096**3 / 989.4e12 * 1e9, abs=100)


def test_each_launch_has_the_class_of_its_row(build: CaptureBuilder) -> None:
    """The Chrome trace groups launches by their grids, and judges none of them again."""
    capture = attribute(busy(build))
    analysis: Analysis = analyze(capture)
    launches = kernel_verdicts(capture, analysis)
    kinds = [launches.points[index].bottleneck.kind for index in launches.of_kernel]
    assert kinds == ["few-blocks", "few-blocks", "compute", "memory"]


@pytest.mark.parametrize(
    ("mhz", "reasons", "kind"), [(1464, 0x4, "clock"), (1464, 0, "compute"), (1830, 0x4, "compute")]
)
def test_a_clock_that_nvml_saw_lowered_is_the_class_of_products(
    build: CaptureBuilder, mhz: int, reasons: int, kind: str
) -> None:
    """At 75 % of the roof: of the 25 % above it 20 are those of 1464 instead of 1830 MHz."""
    build.step("timed", 0, 1_000, device_ns=1_000, device_start_ns=0)
    build.step("profiled", 2_000, 1_000_000)
    build.mm(2_010, 2_050, 4096, 4096, 4096)
    build.kernel(2_020, 3_000, 3_000 + round(2 * 4096**3 / 989.4e3 / 0.75), "some_gemm")
    for time_ns in (500, 100_000):
        sample = {"time_ns": time_ns, "device": 0, "sm_clock_mhz": mhz}
        build.rows["samples"].append({**sample, "throttle_reasons": reasons})
    analysis = analyze(build.build())
    for row in (*analysis.kernels, *analysis.ops):
        assert row.bottleneck.kind == kind
    if kind == "clock":
        (op,) = analysis.ops
        assert op.bottleneck.evidence.endswith(
            "1464 MHz where the roof assumes 1830: software power cap"
        )
        assert op.bottleneck.gain_ns == pytest.approx(op.device_ns * 0.2, rel=0.01)


def test_communication_that_no_operator_launched_is_the_same_in_both_rows(
    build: CaptureBuilder,
) -> None:
    """Beside other kernels without an operator, of which nothing is known."""
    all_reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    build.kernel(10, 1_000, 61_000, all_reduce, kind="collective", collective="allreduce")
    build.kernel(20, 100_000, 300_000, "orphan")
    analysis = analyze(build.build())
    assert device_ns_by_class(analysis.kernels) == device_ns_by_class(analysis.ops)
    (op,) = (op for op in analysis.ops if op.detail == all_reduce)
    assert op.bottleneck == the(analysis.kernels, all_reduce).bottleneck
    assert op.bottleneck.kind == "communication"
