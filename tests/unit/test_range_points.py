"""Roofline points of user ranges."""

import pytest
from capture_builder import CaptureBuilder

from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models.cost import Flops

FLOPS = 2 * 64 * 32 * 16
BYTES = 2 * (64 * 32 + 32 * 16 + 64 * 16)


def range_points(build: CaptureBuilder) -> dict[str, RooflinePoint]:
    return {point.name: point for point in analyze(build.build()).ranges}


def test_a_range_sums_the_operators_inside_its_passes(build: CaptureBuilder) -> None:
    for start in (0, 100, 200):
        build.mm(start, start + 50)
        build.kernel(start + 10, 1000 + start, 1040 + start)
    build.range("part", 0, 60)
    build.range("part", 100, 160)
    (point,) = range_points(build).values()
    assert (point.level, point.name, point.detail, point.calls) == ("range", "part", "region", 2)
    assert (point.device_ns, point.device_fraction) == (80, pytest.approx(2 / 3))
    assert point.flops == (Flops("matmul", "bf16", 2 * FLOPS),)
    assert point.total_bytes == 2 * BYTES


def test_an_operator_with_several_kernels_counts_once(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.kernel(20, 1040, 1050)
    build.range("part", 0, 60)
    assert range_points(build)["part"].total_flops == FLOPS


def test_nested_ranges_each_hold_the_work_of_the_inner_ones(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.mm(100, 150)
    build.kernel(110, 1100, 1140)
    build.range("outer", 0, 200)
    build.range("inner", 100, 160)
    points = range_points(build)
    assert points["outer"].total_flops == 2 * FLOPS
    assert points["inner"].total_flops == FLOPS


def test_declared_counts_stand_for_each_pass(build: CaptureBuilder) -> None:
    for start in (0, 100):
        build.mm(start, start + 50)
        build.kernel(start + 10, 1000 + start, 1040 + start)
        build.range("part", start, start + 60, flops=1000, bytes=77)
    point = range_points(build)["part"]
    # The precision is that of the matmuls inside.
    assert point.flops == (Flops("matmul", "bf16", 2000),)
    assert point.total_bytes == 154
    assert point.assumptions == ("counts declared by the region",)
    assert point.roof_ns is not None


def test_declared_flops_of_unknown_precision_have_no_roof(build: CaptureBuilder) -> None:
    build.op("mylib::secret", 0, 50)
    build.kernel(10, 1000, 1040)
    build.range("part", 0, 60, flops=1000, bytes=77)
    point = range_points(build)["part"]
    assert (point.total_flops, point.total_bytes) == (1000, 77)
    assert (point.roof_ns, point.roof_fraction) == (None, None)
    assert point.flops_per_s == pytest.approx(1000 / 40e-9)


def test_a_declaration_of_some_passes_only_is_not_used(build: CaptureBuilder) -> None:
    for start, flops in ((0, 1000), (100, None)):
        build.mm(start, start + 50)
        build.kernel(start + 10, 1000 + start, 1040 + start)
        build.range("part", start, start + 60, flops=flops)
    assert range_points(build)["part"].total_flops == 2 * FLOPS


def test_where_some_work_is_unknown_the_sum_is_a_lower_bound(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.op("mylib::secret", 60, 90)
    build.kernel(70, 1040, 1050)
    build.range("part", 0, 100)
    point = range_points(build)["part"]
    assert point.total_flops == FLOPS
    assert "lower bounds" in point.assumptions[0]


def test_work_outside_the_profiled_steps_does_not_count(build: CaptureBuilder) -> None:
    build.step("profiled", 100, 200)
    for start in (0, 100):
        build.mm(start, start + 50)
        build.kernel(start + 10, 1000 + start, 1040 + start)
        build.range("part", start, start + 60)
    point = range_points(build)["part"]
    assert (point.calls, point.total_flops) == (1, FLOPS)


def test_ranges_of_one_name_in_two_domains_are_apart(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.range("part", 0, 60)
    build.range("part", 0, 60, domain="nvtx")
    found = [(point.name, point.detail) for point in analyze(build.build()).ranges]
    assert sorted(found) == [("part", "nvtx"), ("part", "region")]


def test_a_range_without_device_work_has_no_point(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    build.range("empty", 500, 600)
    assert range_points(build) == {}
