"""Roofline points: whose cost a kernel has, and that unknown is never 0."""

import math

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.manifest import Calibration, Device, MeasuredCeiling
from gpuprof.reports.sections.coverage import coverage_sentence
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.roof_time import Traffic
from gpuprof.roofline.points.total import Total, sum_known

FLOPS = 2 * 64 * 32 * 16
BYTES = 2 * (64 * 32 + 32 * 16 + 64 * 16)


def the_kernel(analysis: Analysis, name: str) -> RooflinePoint:
    (found,) = (point for point in analysis.kernels if point.name == name)
    return found


def the_op(analysis: Analysis, name: str) -> RooflinePoint:
    (found,) = (point for point in analysis.ops if point.name == name)
    return found


def test_a_kernel_that_is_all_its_operator_launched_has_the_operators_cost(
    build: CaptureBuilder,
) -> None:
    for start in (0, 100):
        build.mm(start, start + 50)
        build.kernel(start + 10, 1000 + start, 1040 + start, "gemm")
    analysis = analyze(build.build())
    kernel, op = the_kernel(analysis, "gemm"), the_op(analysis, "aten::mm")
    assert kernel.flops == op.flops == (Flops("matmul", "bf16", 2 * FLOPS),)
    assert kernel.total_bytes == op.total_bytes == 2 * BYTES
    assert (kernel.calls, kernel.device_ns, kernel.op) == (2, 80, "aten::mm")
    assert kernel.arithmetic_intensity == FLOPS / BYTES
    assert kernel.flops_per_s == pytest.approx(2 * FLOPS / 80e-9)
    assert kernel.bytes_per_s == pytest.approx(2 * BYTES / 80e-9)


def test_an_operators_work_counts_at_its_main_kernel_and_its_helpers_say_whose_they_are(
    build: CaptureBuilder,
) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040, "gemm_split_k")
    build.kernel(20, 1040, 1050, "reduce")
    analysis = analyze(build.build())
    assert the_op(analysis, "aten::mm").total_flops == FLOPS
    main, helper = the_kernel(analysis, "gemm_split_k"), the_kernel(analysis, "reduce")
    assert main.flops == (Flops("matmul", "bf16", FLOPS),)
    assert main.flops_per_s == pytest.approx(FLOPS / 40e-9)
    assert any("its helpers may do a part" in text for text in main.assumptions)
    assert not the_op(analysis, "aten::mm").assumptions
    assert (helper.flops, helper.total_bytes, helper.roof_ns) == (None, None, None)
    assert helper.bottleneck.evidence == ("a helper of aten::mm, whose work counts at gemm_split_k")
    assert sum(point.device_ns for point in analysis.kernels) == 50


def test_kernels_that_share_an_operators_work_have_no_cost_of_their_own(
    build: CaptureBuilder,
) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040, "first_gemm")
    build.kernel(20, 1040, 1070, "second_gemm")
    analysis = analyze(build.build())
    for name in ("first_gemm", "second_gemm"):
        kernel = the_kernel(analysis, name)
        assert (kernel.flops, kernel.total_bytes, kernel.roof_ns) == (None, None, None)
        assert "share the work of aten::mm: see the operator" in kernel.bottleneck.evidence


def test_a_kernel_faster_than_its_roof_does_not_do_all_of_its_operators_work(
    build: CaptureBuilder,
) -> None:
    """At the roof the product takes 139 us: 100 us of one kernel and 60 of others share it."""
    build.mm(0, 50, 4096, 4096, 4096)
    build.kernel(10, 1000, 101_000, "gemm")
    build.kernel(20, 101_000, 161_000, "other")
    analysis = analyze(build.build())
    assert the_op(analysis, "aten::mm").roof_fraction == pytest.approx(
        2 * 4096**3 / 989.4e3 / 160_000, rel=1e-3
    )
    assert the_kernel(analysis, "gemm").flops is None


def test_a_memset_beside_a_kernel_does_not_take_its_cost(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1004, "Memset (Device)", kind="memset", bytes=512)
    build.kernel(20, 1010, 1040, "gemm")
    analysis = analyze(build.build())
    assert the_kernel(analysis, "gemm").total_flops == FLOPS
    memset = the_kernel(analysis, "Memset (Device)")
    assert (memset.flops, memset.bytes_read, memset.bytes_written) == ((), 0, 512)
    assert "a helper of aten::mm" in memset.bottleneck.evidence


def test_one_name_with_and_without_helpers_does_the_work_of_all_its_calls(
    build: CaptureBuilder,
) -> None:
    for start in (0, 100):
        build.mm(start, start + 50)
        build.kernel(start + 10, 1000 + start, 1040 + start, "gemm")
    build.kernel(120, 1200, 1210, "reduce")
    assert the_kernel(analyze(build.build()), "gemm").total_flops == 2 * FLOPS


def test_one_name_that_does_the_work_of_one_call_and_helps_in_another_has_no_cost(
    build: CaptureBuilder,
) -> None:
    for start in (0, 100):
        build.mm(start, start + 50)
        build.kernel(start + 10, 1000 + start, 1020 + start, "gemm")
    build.kernel(120, 1200, 1290, "larger_gemm")
    assert the_kernel(analyze(build.build()), "gemm").flops is None


def test_a_copy_on_the_device_reads_and_writes_its_bytes(build: CaptureBuilder) -> None:
    build.kernel(10, 1000, 3000, "Memcpy DtoD (Device -> Device)", kind="memcpy", bytes=1_000_000)
    copy = the_kernel(analyze(build.build()), "Memcpy DtoD (Device -> Device)")
    assert (copy.flops, copy.bytes_read, copy.bytes_written) == ((), 1_000_000, 1_000_000)
    assert copy.roof_ns == round(2e6 / 3.35e12 * 1e9)
    assert copy.roof == "DRAM (datasheet)"


def test_a_copy_of_unknown_size_has_no_cost(build: CaptureBuilder) -> None:
    build.kernel(10, 1000, 2000, "Memcpy DtoD", kind="memcpy", bytes=100)
    build.kernel(20, 2000, 3000, "Memcpy DtoD", kind="memcpy")
    copy = the_kernel(analyze(build.build()), "Memcpy DtoD")
    assert (copy.flops, copy.total_bytes) == (None, None)


def test_an_operator_without_a_model_lowers_the_coverage(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1060, "gemm")
    build.op("mylib::secret", 60, 90)
    build.kernel(70, 1060, 1090, "secret")
    build.kernel(200, 1090, 1100, "orphan")
    coverage = analyze(build.build()).coverage
    assert coverage.device_ns == 100
    assert (coverage.with_op, coverage.with_flops, coverage.with_bytes) == (0.9, 0.6, 0.6)
    assert [(op.name, op.device_ns, op.calls) for op in coverage.unmodelled] == [
        ("mylib::secret", 30, 1),
        ("(no operator)", 10, 1),
    ]


def test_where_nothing_is_known_no_figure_is_0_or_nan(build: CaptureBuilder) -> None:
    build.op("mylib::secret", 0, 50)
    build.kernel(10, 1000, 1060, "secret")
    build.range("part", 0, 100)
    analysis = analyze(build.build())
    points = (*analysis.kernels, *analysis.ops, *analysis.ranges, analysis.step)
    assert len(points) == 4
    for point in points:
        assert point is not None
        figures = (
            *(point.flops, point.total_flops, point.bytes_read, point.bytes_written),
            *(point.total_bytes, point.arithmetic_intensity, point.flops_per_s),
            *(point.bytes_per_s, point.roof_ns, point.roof_fraction),
        )
        assert set(figures) == {None}
        assert not point.roof


def test_work_that_took_no_time_has_no_rates(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1000, "gemm")
    analysis = analyze(build.build())
    for point in (*analysis.kernels, *analysis.ops):
        assert (point.flops_per_s, point.bytes_per_s, point.roof_fraction) == (None, None, None)
        assert point.device_fraction == 0
        assert point.total_flops == FLOPS


def test_more_than_the_roof_is_flagged_and_not_clipped(build: CaptureBuilder) -> None:
    build.mm(0, 50, 4096, 4096, 4096)
    build.kernel(10, 1000, 1000 + 100_000, "gemm")
    analysis = analyze(build.build())
    roof_ns = 2 * 4096**3 / 989.4e12 * 1e9
    for point in (*analysis.kernels, *analysis.ops, analysis.step):
        assert point is not None
        assert point.roof_fraction == pytest.approx(roof_ns / 100_000)
        assert point.roof_ns == round(roof_ns)
    assert "peak or count wrong" in analysis.ops[0].bottleneck.evidence
    assert any(
        "1 operator is above its compute roof, aten::mm at 139%" in line
        for line in analysis.warnings
    )


def test_a_device_without_ceilings_gets_no_percentage(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040, "gemm")
    unknown = Device(index=0, kind="cuda", name="NVIDIA Z9000")
    analysis = analyze(build.build(unknown))
    assert analysis.ceilings == ()
    assert analysis.roof_source is None
    (op,) = analysis.ops
    assert (op.total_flops, op.roof_ns, op.roof_fraction) == (FLOPS, None, None)
    assert op.bottleneck.evidence.endswith("run gpuprof calibrate on it")
    assert any("NVIDIA Z9000" in line for line in analysis.warnings)


def test_without_any_ceiling_the_verdict_is_that_and_not_the_lack_of_a_model(
    build: CaptureBuilder,
) -> None:
    build.step("timed", -1000, -900, device_ns=100)
    build.step("profiled", 0, 2000)
    build.mm(0, 50)
    build.kernel(10, 1000, 1090, "gemm")
    unknown = analyze(build.build(Device(index=0, kind="cuda", name="NVIDIA Z9000"))).bottleneck
    assert (unknown.kind, unknown.gain_ns) == ("unknown", None)
    assert unknown.evidence.startswith("no ceiling is known for this device")
    known = analyze(build.build()).bottleneck
    assert known.kind == "small"


def test_measured_and_datasheet_ceilings_do_not_mix(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040, "gemm")
    capture = build.build()
    device = capture.processes[0].fingerprint.devices[0]
    measured = MeasuredCeiling(
        kind="compute", name="bf16", precision="bf16", rate=7e14, spread=0.0, repeats=3
    )
    calibration = Calibration(
        device=device, torch="2", threads=None, measured_ns=0, ceilings=(measured,)
    )
    analysis = analyze(build.build(calibration=calibration))
    assert {ceiling.source for ceiling in analysis.ceilings} == {"datasheet", "measured"}
    assert analysis.roof_source == "datasheet"
    assert "datasheet" in analysis.ops[0].roof


def test_more_than_a_measured_roof_asks_to_measure_it_again(build: CaptureBuilder) -> None:
    unknown = Device(index=0, kind="cuda", name="NVIDIA Z9000")
    ceilings = tuple(
        MeasuredCeiling(rate=rate, spread=0.0, repeats=3, **what)
        for rate, what in (
            (6e14, {"kind": "compute", "name": "bf16", "precision": "bf16"}),
            (3e12, {"kind": "memory", "name": "DRAM copy", "level": "DRAM"}),
        )
    )
    calibration = Calibration(
        device=unknown, torch="2", threads=None, measured_ns=0, ceilings=ceilings
    )
    build.mm(0, 50, 4096, 4096, 4096)
    build.kernel(10, 1000, 1000 + 200_000, "gemm")

    analysis = analyze(build.build(unknown, calibration=calibration))

    (line,) = (line for line in analysis.warnings if "compute roof" in line)
    assert "aten::mm at 115% of bf16" in line
    assert "gpuprof calibrate --force" in line


def test_on_a_cpu_work_is_compared_with_the_level_its_data_fits_in(build: CaptureBuilder) -> None:
    device = Device(index=0, kind="cpu", name="a CPU")
    memory = {"L3": (2e11, 32_000_000), "DRAM": (4e10, None)}
    ceilings = (
        MeasuredCeiling(
            kind="compute", name="fp32", rate=1e15, spread=0.0, repeats=3, precision="fp32"
        ),
        *(
            MeasuredCeiling(
                kind="memory",
                name=level,
                rate=rate,
                spread=0.0,
                repeats=3,
                level=level,
                capacity_bytes=capacity,
            )
            for level, (rate, capacity) in memory.items()
        ),
    )
    calibration = Calibration(device=device, torch="2", threads=2, measured_ns=0, ceilings=ceilings)
    for start, elements in ((0, 1_000_000), (100_000, 1_000_000), (200_000, 100_000_000)):
        dims, types = f"[[{elements}]]", '["float"]'
        op_id = build.op("aten::relu_", start, start + 90_000, dims=dims, types=types)
        build.kernel(start, start, start + 90_000, "aten::relu_", kind="op", op_id=op_id)
    build.range("all", 0, 300_000)
    analysis = analyze(build.build(device, calibration=calibration))
    small, large = sorted(analysis.ops, key=lambda point: point.total_bytes or 0)
    # In place: 4 MB of data each of two calls, and 400 MB.
    assert (small.roof, small.roof_ns) == ("L3 (measured)", round(2 * 8e6 / 2e11 * 1e9))
    assert (large.roof, large.roof_ns) == ("DRAM (measured)", round(8e8 / 4e10 * 1e9))
    together = (small.roof_ns or 0) + (large.roof_ns or 0)
    for whole in (analysis.step, *analysis.ranges):
        assert whole is not None
        assert whole.roof_ns == pytest.approx(together, abs=1)


def test_a_launch_configuration_is_told_where_all_launches_share_it(build: CaptureBuilder) -> None:
    shape = dict(zip(("grid_x", "grid_y", "grid_z"), (8, 2, 1), strict=True))
    block = dict(zip(("block_x", "block_y", "block_z"), (256, 1, 1), strict=True))
    for start, grid_x in ((0, 8), (100, 8), (200, 9)):
        build.mm(start, start + 50)
        name = "same" if start < 200 else "varies"
        build.kernel(start + 10, 1000 + start, 1040 + start, name, **{**shape, **block})
        if start == 200:
            build.mm(300, 350)
            build.kernel(310, 1300, 1340, name, **{**shape, **block, "grid_x": grid_x})
    analysis = analyze(build.build())
    assert the_kernel(analysis, "same").detail == "grid 8x2x1, block 256x1x1"
    assert "grid" not in the_kernel(analysis, "varies").detail


def test_points_are_sorted_and_their_fractions_add_up(build: CaptureBuilder) -> None:
    for start, width in ((0, 10), (100, 30), (200, 20)):
        build.op(f"mylib::op{width}", start, start + 50)
        build.kernel(start + 10, 1000 + start, 1000 + start + width, f"k{width}")
    analysis = analyze(build.build())
    assert [point.name for point in analysis.kernels] == ["k30", "k20", "k10"]
    for points in (analysis.kernels, analysis.ops):
        assert math.fsum(point.device_fraction for point in points) == pytest.approx(1)


def test_the_sum_of_a_known_and_an_unknown_is_a_lower_bound() -> None:
    known = Total((Flops("matmul", "bf16", 10), Flops("vector", "fp32", 1)), 100, 50)
    unknown = Total(None, 7, None)
    total = sum_known([known.of_calls(1), unknown.of_calls(1), known.of_calls(5)])
    assert total.flops == (Flops("matmul", "bf16", 20), Flops("vector", "fp32", 2))
    assert (total.bytes_read, total.bytes_written) == (200, 100)
    assert "lower bounds" in total.assumptions[0]
    # 150 bytes of one call on 100 bytes of data, and as many of five calls.
    assert total.traffic == (Traffic(150, 100), Traffic(150, 20))
    assert sum_known([known]).assumptions == ()
    nothing = sum_known([unknown])
    assert (nothing.flops, nothing.bytes_moved, nothing.all_traffic) == (None, None, None)


def test_coverage_is_stated_for_the_rows_of_kernels_too(build: CaptureBuilder) -> None:
    """40 of 50 ns of a product are its main kernel's; of two that share one none is counted."""
    build.mm(0, 50)
    build.kernel(10, 1000, 1040, "gemm_split_k")
    build.kernel(20, 1040, 1050, "reduce")
    build.mm(100, 150, 128)
    build.kernel(110, 2000, 2030, "first_gemm")
    build.kernel(120, 2030, 2050, "second_gemm")
    analysis = analyze(build.build())
    assert analysis.coverage.with_flops == 1
    assert analysis.coverage.kernels_counted == 0.4
    sentence = coverage_sentence(analysis)
    assert "In rows of kernels 40.0% shows a rate" in sentence
    build = CaptureBuilder()
    build.mm(0, 50)
    build.kernel(10, 1000, 1040, "gemm")
    assert "rows of kernels" not in coverage_sentence(analyze(build.build()))
