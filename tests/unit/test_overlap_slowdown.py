"""Kernels that take longer while a collective runs beside them."""

import random
import statistics
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.attribution import attribute

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GRID = {"grid_x": 8, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
STRAGGLER = (
    Path(__file__).resolve().parents[3] / "shared/data/recordings/h200x4_straggler_rank3.json.gz"
)


def products(build: CaptureBuilder, start: int, *durations: int, blocks: int = 8) -> None:
    """Products one after the other, each launched by an operator of its own."""
    for duration in durations:
        build.mm(start, start + 10)
        build.kernel(start + 1, start, start + duration, "gemm", **{**GRID, "grid_x": blocks})
        start += duration + 20


def collective(build: CaptureBuilder, start: int, end: int) -> None:
    build.kernel(0, start, end, ALL_REDUCE, kind="collective", collective="allreduce", stream=9)


def test_the_loss_is_what_launches_take_longer_than_alone(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 5000)
    build.step("profiled", 5000, 10_000)
    products(build, 100, 100, 104, 102, 98)
    products(build, 6000, 150, 160, 155, 151)
    collective(build, 5500, 9000)
    slowed = analyze(build.build()).slowed_by_communication
    assert slowed is not None
    (one,) = slowed.kernels
    assert (one.under, one.alone, one.op, one.phase) == (4, 4, "aten::mm", "")
    # Alone 101 ns by the median; 616 ns in four launches, of two steps.
    assert one.ratio == pytest.approx(616 / 404)
    assert one.lost_ns == slowed.lost_ns == round((616 - 404) / 2)
    assert slowed.ratio == pytest.approx(one.ratio, rel=0.01)


def test_it_stands_in_the_kernels_and_the_step_s_evidence(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 10_000)
    products(build, 100, 100, 104, 102, 98)
    products(build, 6000, 250, 260, 255, 251)
    collective(build, 5500, 9000)
    analysis = analyze(build.build())
    (kernel,) = (point for point in analysis.kernels if point.name == "gemm")
    assert "2.51 times as long under a collective (4 launches, 4 without), 612 ns a step" in (
        kernel.bottleneck.evidence
    )
    assert "collectives that run beside kernels cost them 612 ns of it (6% of the step)" in (
        analysis.bottleneck.evidence
    )


def lost(build: CaptureBuilder) -> Analysis:
    build.step("profiled", 0, 20_000)
    return analyze(build.build())


def test_what_ran_always_or_never_beside_a_collective_tells_nothing(build: CaptureBuilder) -> None:
    products(build, 100, 100, 104, 102, 98)
    collective(build, 5500, 9000)
    assert lost(build).slowed_by_communication is None
    collective(build, 0, 900)
    assert lost(build).slowed_by_communication is None


def test_other_grids_are_other_work(build: CaptureBuilder) -> None:
    products(build, 100, 100, 104, 102, 98)
    products(build, 6000, 250, 260, 255, 251, blocks=16)
    collective(build, 5500, 9000)
    assert lost(build).slowed_by_communication is None


def test_times_that_differ_by_chance_are_no_loss(build: CaptureBuilder) -> None:
    products(build, 100, 100, 140, 110, 130)
    products(build, 6000, 135, 105, 145, 120)
    collective(build, 5500, 9000)
    assert lost(build).slowed_by_communication is None


def test_a_kernel_that_runs_beside_another_product_is_slowed_by_that(build: CaptureBuilder) -> None:
    products(build, 100, 100, 104, 102, 98)
    products(build, 6000, 250, 260, 255, 251)
    collective(build, 5500, 9000)
    build.kernel(5000, 5900, 8000, "other", stream=11, **GRID)
    assert lost(build).slowed_by_communication is None


def test_partly_overlapped_launches_count_on_no_side(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 20_000)
    products(build, 100, 100, 104, 102, 98, 101)
    products(build, 6000, 250, 260, 255, 251)
    collective(build, 6100, 9000)
    slowed = analyze(build.build()).slowed_by_communication
    assert slowed is not None
    assert (slowed.kernels[0].under, slowed.kernels[0].alone) == (3, 5)


def test_any_mixture_gives_what_plain_loops_give(build: CaptureBuilder) -> None:
    chance = random.Random(5)
    build.step("profiled", 0, 10**6)
    spans = [(start, start + chance.randint(500, 3000)) for start in range(1000, 90_000, 9000)]
    for span in spans:
        collective(build, *span)
    start, launches = 100, []
    while start < 95_000:
        busy = any(begin <= start < end for begin, end in spans)
        duration = chance.randint(90, 110) + 40 * busy
        launches.append((start, start + duration))
        products(build, start, duration)
        start += duration + chance.randint(10, 60)
    sides: dict[str, list[int]] = {"under": [], "alone": []}
    for begin, end in launches:
        shared = sum(max(0, min(end, until) - max(begin, since)) for since, until in spans)
        if shared in (0, end - begin):
            sides["under" if shared else "alone"].append(end - begin)
    slowed = analyze(build.build()).slowed_by_communication
    assert slowed is not None
    (one,) = slowed.kernels
    # A launch that a collective overlaps for a hundredth of its time counts on neither or either.
    assert abs(one.under - len(sides["under"])) <= 2
    assert abs(one.alone - len(sides["alone"])) <= 2
    alone = statistics.median(sides["alone"])
    assert one.lost_ns == pytest.approx(sum(sides["under"]) - alone * len(sides["under"]), rel=0.05)


@pytest.mark.skipif(not STRAGGLER.exists(), reason="the recordings of ../shared are absent")
def test_products_of_a_recording_take_nearly_twice_as_long_under_nccl() -> None:
    capture = attribute(kineto.read(STRAGGLER))
    slowed = analyze(capture).slowed_by_communication
    assert slowed is not None
    first = slowed.kernels[0]
    shapes = dict(capture.ops.select("op_id", "input_dims").iter_rows())
    columns = ("name", "kind", "start_ns", "end_ns", "op_id")
    rows = list(capture.kernels.select(columns).iter_rows())
    busy = [(start, end) for _, kind, start, end, _ in rows if kind == "collective"]
    under, alone = [], []
    for name, _, start, end, op in rows:
        if name != first.name or shapes.get(op) != first.op_detail.partition(' ["')[0]:
            continue
        shared = sum(max(0, min(end, until) - max(start, since)) for since, until in busy)
        if shared > 0.99 * (end - start):
            under.append(end - start)
        elif shared < 0.01 * (end - start):
            alone.append(end - start)
    assert (len(under), len(alone)) == (first.under, first.alone)
    assert first.ratio == pytest.approx(statistics.fmean(under) / statistics.median(alone))
    assert first.ratio > 1.5
