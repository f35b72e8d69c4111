"""Capture -> Analysis on the small traces that made other tools fail: costs are counted once."""

from pathlib import Path

import msgspec
import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto, schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Manifest, ProcessInfo
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

DATA = Path(__file__).parents[1] / "data" / "kineto"


def read(name: str) -> Capture:
    return kineto.read(DATA / f"{name}.json")


def flops(analysis: Analysis) -> int:
    """Operations of all operators together."""
    return sum(op.total_flops or 0 for op in analysis.ops)


def busy_ns(capture: Capture) -> int:
    exposed = analyze(capture).exposed
    assert exposed is not None
    return exposed.busy_ns


def test_of_nested_operators_one_has_the_work() -> None:
    analysis = analyze(read("nested-ops"))
    (op,) = analysis.ops
    assert (op.name, op.calls, op.device_ns) == ("aten::mm", 1, 400_000)
    assert op.total_flops == flops(analysis) == 2 * 8192 * 4096 * 4096
    assert op.total_bytes == 2 * (8192 * 4096 + 4096 * 4096 + 8192 * 4096)
    assert op.flops_per_s == pytest.approx(687.2e12, rel=1e-3)
    (kernel,) = analysis.kernels
    assert (kernel.op, kernel.total_flops) == ("aten::mm", op.total_flops)
    assert analysis.coverage.with_flops == 1


def test_streams_that_overlap_are_busy_once() -> None:
    capture = read("overlap-union")
    assert busy_ns(capture) == 200_000
    assert sum(point.device_ns for point in analyze(capture).kernels) == 250_000


def test_a_graph_replay_without_operators_has_no_flops() -> None:
    analysis = analyze(read("cuda-graph"))
    assert sum(kernel.device_ns for kernel in analysis.kernels) == 35_000
    assert sum(kernel.calls for kernel in analysis.kernels) == 3
    assert {point.flops for point in (*analysis.kernels, *analysis.ops)} == {None}
    coverage = analysis.coverage
    assert (coverage.with_op, coverage.with_flops, coverage.with_bytes) == (0, 0, 0)
    (decode,) = analysis.ranges
    assert (decode.name, decode.device_ns, decode.flops) == ("decode", 35_000, None)
    assert analysis.step is not None
    assert (analysis.step.flops, analysis.step.roof_ns) == (None, None)
    assert analysis.utilization is None


def test_recomputed_operators_are_executed_work() -> None:
    analysis = analyze(read("recompute"))
    assert flops(analysis) == 4 * 65536
    assert {op.name for op in analysis.ops} == {"aten::mm"}


def test_operators_of_a_run_without_a_gpu_are_its_work() -> None:
    analysis = analyze(read("cpu-only"))
    assert sum(op.device_ns for op in analysis.ops) == 50_000
    assert flops(analysis) == 65536
    assert analysis.device is not None
    assert analysis.device.kind == "cpu"
    assert analysis.ceilings == ()
    assert {op.roof_fraction for op in analysis.ops} == {None}
    assert any("No GPU activity" in line for line in analysis.warnings)


def test_without_shapes_flops_are_unknown_and_the_remedy_is_told() -> None:
    analysis = analyze(read("no-shapes"))
    assert analysis.coverage.device_ns == 8_000
    assert {op.flops for op in analysis.ops} == {None}
    assert any("record_shapes=True" in line for line in analysis.warnings)


def test_annotations_and_waits_on_device_rows_are_not_work() -> None:
    capture = read("gpu-annotation-and-sync")
    assert busy_ns(capture) == 60_000
    analysis = analyze(capture)
    assert analysis.coverage.device_ns == 100_000
    assert len(analysis.kernels) == 2


@pytest.mark.parametrize("trace", sorted(p.name for p in DATA.glob("h100_*.json.gz")))
def test_every_level_of_a_real_trace_holds_all_its_device_time(trace: str) -> None:
    analysis = analyze(kineto.read(DATA / trace))
    total = analysis.coverage.device_ns
    assert total > 0
    assert sum(point.device_ns for point in analysis.kernels) == total
    assert sum(point.device_ns for point in analysis.ops) == total
    assert analysis.step is not None
    assert analysis.step.device_ns == total
    split = analysis.split
    if split is not None:
        assert split.step_ns == sum(part.nanoseconds for part in split.parts)


def test_an_analysis_survives_json() -> None:
    analysis = analyze(kineto.read(DATA / "h100_block_train_bf16.json.gz"))
    assert msgspec.json.decode(msgspec.json.encode(analysis), type=Analysis) == analysis


def test_an_empty_capture_says_that_nothing_is_known(build: CaptureBuilder) -> None:
    analysis = analyze(build.build(None))
    assert (analysis.kernels, analysis.ops, analysis.ranges, analysis.step) == ((), (), (), None)
    assert (analysis.device, analysis.split, analysis.utilization) == (None, None, None)
    assert analysis.coverage.device_ns == 0
    assert analysis.coverage.with_flops is None
    assert analysis.bottleneck.kind == "unknown"
    assert analysis.bottleneck.evidence == "no device work was recorded"


def test_work_without_any_step_is_one_step(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    analysis = analyze(build.build())
    assert analysis.split is not None
    assert (analysis.split.basis, analysis.split.step_ns) == ("whole trace", 40)
    assert analysis.bottleneck.kind == "small"


def two_ranks(build: CaptureBuilder) -> Capture:
    build.mm(0, 50)
    build.kernel(10, 1000, 1040)
    one = build.build()
    tables = {
        name: pl.concat(
            [frame, frame.with_columns(pl.lit(3, pl.Int32).alias("rank"))]
        ).with_columns(*([pl.col("end_ns") + 10 * pl.col("rank")] if name == "kernels" else []))
        for name, frame in one.tables().items()
    }
    manifest = Manifest(tool_version="0", source="test", title="t", created_ns=0, ranks=(0, 3))
    first = one.processes[0]
    second = msgspec.structs.replace(first, rank=3, world_size=4)
    return Capture(manifest, (first, second), **tables)


def test_one_rank_is_analysed_and_the_first_unless_another_is_given(build: CaptureBuilder) -> None:
    capture = two_ranks(build)
    assert (analyze(capture).rank, analyze(capture).coverage.device_ns) == (0, 40)
    other = analyze(capture, rank=3)
    assert (other.rank, other.world_size, other.coverage.device_ns) == (3, 4, 70)
    with pytest.raises(ValueError, match="no rank 1"):
        analyze(capture, rank=1)


def test_a_device_that_the_fingerprint_does_not_hold_is_unknown() -> None:
    manifest = Manifest(tool_version="0", source="test", title="t", created_ns=0)
    capture = Capture(manifest, (ProcessInfo(device=3),), kernels=schema.empty("kernels"))
    assert analyze(capture).device is None
