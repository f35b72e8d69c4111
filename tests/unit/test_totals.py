"""Totals by kind of work, phase and precision: each adds up to the device time."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from capture_builder import CaptureBuilder
from recordings import REFUSED, analyses

from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models import family_of, registry
from gpuprof.roofline.total_figures import Subtotal
from gpuprof.roofline.totals.totals import NO_ARITHMETIC, PRECISION_UNKNOWN
from gpuprof.roofline.totals.work_kinds import OTHER, kind_of_operator

DATA = Path(__file__).parents[1] / "data"
RECORDED = sorted(
    (
        *(DATA / "captures").iterdir(),
        *(path for path in (DATA / "kineto").iterdir() if path.suffix in (".json", ".gz")),
        *(DATA / "nsys").glob("*.sqlite.gz"),
        *(DATA / "ncu").glob("*.csv*"),
    )
)


def divisions(analysis: Analysis) -> tuple[tuple[Subtotal, ...], ...]:
    assert analysis.totals is not None
    totals = analysis.totals
    return tuple(rows for rows in (totals.by_kind, totals.by_phase, totals.by_precision) if rows)


def known(points: Iterable[RooflinePoint | Subtotal], name: str) -> int:
    return sum(value for point in points if (value := getattr(point, name)) is not None)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_each_division_of_a_recording_adds_up(path: Path) -> None:
    if path.name in REFUSED:
        return
    analysis = analyses(path)[0]
    if analysis.totals is None:
        assert not analysis.ops
        return
    assert analysis.totals.device_ns == analysis.coverage.device_ns
    for rows in divisions(analysis):
        assert sum(row.device_ns for row in rows) == analysis.coverage.device_ns
        assert len({row.name for row in rows}) == len(rows)
        # The rows of operators, added up without their kinds.
        assert known(rows, "flops") == known(analysis.ops, "total_flops")
        assert known(rows, "bytes_moved") == known(analysis.ops, "total_bytes")
        counted_ns = sum(op.device_ns for op in analysis.ops if op.flops is not None)
        assert sum(row.flops_ns for row in rows) == counted_ns
    by_phase = Counter[str]()
    for op in analysis.ops:
        by_phase[op.phase] += op.device_ns
    for phase, device_ns in by_phase.items():
        if phase:
            rows = [row for row in analysis.totals.by_phase if row.name.split(",")[0] == phase]
            assert sum(row.device_ns for row in rows) == device_ns


def training_step(build: CaptureBuilder) -> Analysis:
    """A product of 100 ns forward and 200 backward, an all-reduce of 60, an optimizer of 40."""
    build.step("profiled", 0, 1000)
    build.mm(0, 10)
    build.kernel(5, 100, 200)
    node = build.op("MmBackward0", 20, 40, thread=2)
    build.mm(21, 30, thread=2, parent_id=node)
    build.kernel(22, 200, 400, thread=2)
    build.op("record_param_comms", 31, 35, thread=2, parent_id=node)
    build.kernel(32, 400, 460, name="ncclDevKernel_AllReduce", kind="collective", thread=2)
    build.range("Optimizer.step#SGD.step", 50, 90)
    types = '["float", "float"]'
    build.op("aten::add_", 51, 60, dims="[[64], [64]]", types=types)
    build.kernel(52, 460, 500)
    build.mm(61, 70)
    build.kernel(62, 500, 530)
    # Nothing tells who launched these.
    build.kernel(95, 530, 537, thread=3)
    build.kernel(96, 537, 540, name="Memset (Device)", kind="memset", bytes=64, thread=3)
    return analyze(build.build())


def test_kinds_phases_and_precisions_of_a_training_step(build: CaptureBuilder) -> None:
    totals = training_step(build).totals
    assert totals is not None
    assert totals.device_ns == 440
    assert {row.name: row.device_ns for row in totals.by_kind} == {
        "GEMM": 330,
        "communication": 60,
        "optimizer": 40,
        OTHER: 7,
        "copy": 3,
    }
    assert {row.name: row.device_ns for row in totals.by_phase} == {
        "forward": 100,
        "backward": 200,
        "backward, communication": 60,
        "optimizer": 70,
        "phase unknown": 10,
    }
    assert {row.name: row.device_ns for row in totals.by_precision} == {
        "bf16": 330,
        PRECISION_UNKNOWN: 7,
        "fp32": 40,
        NO_ARITHMETIC: 63,
    }


def test_counts_are_those_of_the_operators(build: CaptureBuilder) -> None:
    totals = training_step(build).totals
    assert totals is not None
    (gemm,) = (row for row in totals.by_kind if row.name == "GEMM")
    moved = 2 * (64 * 32 + 32 * 16 + 64 * 16)
    assert gemm.flops == 3 * 2 * 64 * 32 * 16
    assert gemm.bytes_moved == 3 * moved
    assert gemm.flops_ns == gemm.roofed_ns == gemm.device_ns == 330
    (unknown,) = (row for row in totals.by_precision if row.name == PRECISION_UNKNOWN)
    assert unknown.flops is None
    assert unknown.flops_ns == 0
    assert unknown.roof_fraction is None


def test_a_partly_counted_row_says_of_how_much(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    build.mm(0, 10)
    build.kernel(5, 100, 200)
    # Its shapes were not recorded.
    build.op("aten::mm", 20, 30)
    build.kernel(25, 200, 240)
    totals = analyze(build.build()).totals
    assert totals is not None
    (gemm,) = totals.by_kind
    assert gemm.device_ns == 140
    assert gemm.flops_ns == gemm.bytes_ns == gemm.roofed_ns == 100
    assert gemm.flops == 2 * 64 * 32 * 16


def test_an_operator_that_also_communicates_counts_once(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    build.mm(0, 10)
    build.kernel(5, 100, 200)
    build.kernel(6, 200, 250, name="ncclDevKernel_AllGather", kind="collective")
    totals = analyze(build.build()).totals
    assert totals is not None
    assert {row.name: row.flops for row in totals.by_kind} == {
        "GEMM": 2 * 64 * 32 * 16,
        "communication": None,
    }
    assert {row.name: row.device_ns for row in totals.by_kind} == {"GEMM": 100, "communication": 50}


def test_names_of_kernels_tell_what_no_operator_does(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    graph = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
    build.kernel(5, 100, 200, name=graph)
    # An operator that the tables do not know.
    build.op("mylib::thing", 20, 30)
    build.kernel(25, 200, 230, name="void at::native::vectorized_elementwise_kernel<4, ...>")
    build.kernel(26, 230, 240, name="ncclDevKernel_AllGather_RING_LL(...)", kind="collective")
    totals = analyze(build.build()).totals
    assert totals is not None
    assert {row.name: row.device_ns for row in totals.by_kind} == {
        "GEMM": 100,
        "elementwise": 30,
        "communication": 10,
    }
    assert {row.name: row.device_ns for row in totals.by_precision} == {
        "bf16": 100,
        PRECISION_UNKNOWN: 30,
        NO_ARITHMETIC: 10,
    }


def test_without_a_backward_pass_there_are_no_phases(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    build.mm(0, 10)
    build.kernel(5, 100, 200)
    analysis = analyze(build.build())
    assert analysis.totals is not None
    assert analysis.totals.by_phase == ()


def test_without_device_work_there_are_no_totals(build: CaptureBuilder) -> None:
    assert analyze(build.build()).totals is None


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::addmm", "GEMM"),
        ("aten::_scaled_dot_product_flash_attention_backward", "attention"),
        ("aten::cudnn_convolution", "convolution"),
        ("aten::native_layer_norm", "norm"),
        ("aten::_fused_rms_norm", "norm"),
        ("vllm::unified_attention_with_output", "attention"),
        ("_C::rms_norm", "norm"),
        ("_C_cache_ops::reshape_and_cache_flash", "embedding and indexing"),
        ("aten::_log_softmax", "softmax and loss"),
        ("aten::sum", "reduction"),
        ("aten::gelu", "elementwise"),
        ("aten::embedding", "embedding and indexing"),
        ("aten::copy_", "copy"),
        ("aten::_foreach_copy_", "copy"),
        ("aten::_foreach_norm", "reduction"),
        ("aten::_foreach_add_", "elementwise"),
        ("aten::_fused_adamw_", "optimizer"),
        ("fbgemm::FloatToFP8RowwiseQuantized", "elementwise"),
        ("fbgemm::bounds_check_indices", "embedding and indexing"),
        ("c10d::allreduce_", "communication"),
        ("triton_poi_fused_add_mul_0", "elementwise"),
        ("triton_red_fused_sum_1", "reduction"),
        ("triton_per_fused_native_layer_norm_2", "norm"),
        ("triton_red_fused__log_softmax_3", "softmax and loss"),
        ("triton_tem_fused_mm_4", "GEMM"),
        ("triton_tem_fused_flex_attention_5", "attention"),
        ("triton_tem_fused_convolution_6", "convolution"),
        ("mylib::fused_thing", OTHER),
        ("aten::_cdist_forward", OTHER),
    ],
)
def test_kinds_of_operators(operator: str, kind: str) -> None:
    assert kind_of_operator(operator) == kind


def test_every_family_has_a_kind() -> None:
    """A new module of cost models says in the table what kind of work it models."""
    for name in registry._models:
        if family_of(name) is not None and name not in registry._views:
            assert kind_of_operator(name) != OTHER, f"{name} of {family_of(name)}"


def test_totals_are_in_the_json_and_old_analyses_stay_readable(build: CaptureBuilder) -> None:
    analysis = training_step(build)
    stored = msgspec.json.decode(msgspec.json.encode(analysis))
    assert stored["totals"]["by_kind"][0]["name"] == "GEMM"
    del stored["totals"]
    assert msgspec.convert(stored, Analysis).totals is None
