"""Operators that torch marks for Nsight Systems, and their element types by kernels' names."""

import gzip
import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors import nsys
from gpuprof.collectors.nsys.autograd_ranges import split_operators
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models.call import OpCall, Tensor, parse_call
from gpuprof.roofline.cost_models.untyped import TYPES_BY_KERNELS, with_types

# tests/gpu/record_autograd_nvtx.py on an H200, without what tells of the machine.
RECORDING = Path(__file__).parents[1] / "data" / "nsys" / "h200_autograd_ranges.sqlite.gz"


def ranges(*names: str, domain: str = "nvtx", across: bool = False) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "name": names,
            "domain": domain,
            "across_threads": across,
            "process": 1,
            "thread": 1,
            "start_ns": list(range(len(names))),
            "end_ns": [100] * len(names),
        }
    )


@pytest.mark.parametrize(
    ("text", "name", "sequence", "sizes"),
    [
        ("aten::mm, op_id = 7, sizes = [[2, 3], [3, 4]]", "aten::mm", None, "[[2, 3], [3, 4]]"),
        (
            "aten::t, seq = 9, op_id = 7, sizes = [[2, 3]], input_op_ids = [(0,-1)]",
            *("aten::t", 9, "[[2, 3]]"),
        ),
        ("AddmmBackward0, seq = 4, op_id = 7", "AddmmBackward0", 4, None),
        # torch 1.8 counts no operators.
        ("aten::mm, seq = 12, sizes = [[2, 3], [3, 4]]", "aten::mm", 12, "[[2, 3], [3, 4]]"),
        (
            "autograd::engine::evaluate_function: MmBackward0, op_id = 31",
            *("autograd::engine::evaluate_function: MmBackward0", None, None),
        ),
        (
            "aten::cat, op_id = 3, sizes = [[[2, 3], [2, 3]], []]",
            "aten::cat",
            None,
            "[[[2, 3], [2, 3]], []]",
        ),
    ],
)
def test_a_range_of_autograd_is_an_operator(
    text: str, name: str, sequence: int | None, sizes: str | None
) -> None:
    operators, others = split_operators(ranges(text))
    assert others.is_empty()
    (row,) = operators.iter_rows(named=True)
    assert (row["name"], row["sequence"], row["input_dims"]) == (name, sequence, sizes)
    assert row["input_types"] == (None if sizes is None else "[]")


@pytest.mark.parametrize(
    ("text", "name", "domain"),
    [
        ("Optimizer.step#AdamW.step, op_id = 5", "Optimizer.step#AdamW.step", "record_function"),
        ("step 3", "step 3", "nvtx"),
        ("epoch 1, seq = many", "epoch 1, seq = many", "nvtx"),
        ("", "", "nvtx"),
        (", op_id = 5", ", op_id = 5", "nvtx"),
    ],
)
def test_other_ranges_stay_ranges(text: str, name: str, domain: str) -> None:
    operators, others = split_operators(ranges(text))
    assert operators.is_empty()
    assert others.select("name", "domain").rows() == [(name, domain)]


def test_what_another_library_marks_in_torchs_words_is_its_own() -> None:
    text = "aten::mm, op_id = 7, sizes = [[2, 3], [3, 4]]"
    for frame in (ranges(text, domain="mine"), ranges(text, across=True)):
        operators, others = split_operators(frame)
        assert operators.is_empty()
        assert others["name"].to_list() == [text]


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyze(nsys.read(RECORDING))


def products_by_hand(path: Path) -> int:
    """FLOPs of all mm, addmm and bmm that the export's text names; shares no code with ours."""
    found = 0
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(gzip.decompress(path.read_bytes()))
        texts = connection.execute(
            "SELECT coalesce(n.text, s.value) FROM NVTX_EVENTS n "
            "LEFT JOIN StringIds s ON s.id=n.textId"
        )
        for (text,) in texts:
            if match := re.match(r"aten::(mm|addmm|bmm), .*sizes = (\[.*\]), input", text or ""):
                sizes = [each for each in json.loads(match[2]) if len(each) >= 2]
                found += 2 * math.prod(sizes[0]) * sizes[1][-1]
    return found


def test_products_of_a_recording_have_the_flops_of_their_sizes(analysis: Analysis) -> None:
    found = sum(
        part.count
        for point in analysis.kernels
        if point.op in ("aten::mm", "aten::addmm", "aten::bmm")
        for part in point.flops or ()
    )
    assert found == products_by_hand(RECORDING)


def test_a_recording_alone_has_operators_phases_steps_and_advice(analysis: Analysis) -> None:
    assert analysis.coverage.with_op == 1.0
    assert analysis.coverage.with_flops is not None
    assert analysis.coverage.with_flops > 0.75
    assert analysis.totals is not None
    phases = {total.name: total.device_ns for total in analysis.totals.by_phase}
    assert phases.keys() >= {"forward", "backward", "optimizer"}
    fp32 = [
        point
        for point in analysis.kernels
        if point.name.startswith("sm80_xmma_gemm_f32f32") and point.assumptions
    ]
    assert {point.bottleneck.kind for point in fp32 if point.bottleneck} == {"no-tensor"}
    assert all(TYPES_BY_KERNELS in point.assumptions for point in fp32)


def call(name: str, dims: str, *kernels: str, types: str = "[]") -> OpCall:
    found = parse_call(name, dims, types, None, None, kernels=kernels)
    assert found is not None
    return found


def types_of(found: OpCall) -> list[str | None]:
    return [
        each.dtype.name if each.dtype else None
        for each in found.arguments
        if isinstance(each, Tensor)
    ]


NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
FP32 = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_"
    "alignc4_execute_kernel__5x_cublas"
)
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, X>()"
CASTING_ADD = ADD.replace("vectorized_elementwise_kernel", "unrolled_elementwise_kernel")
# With gpu_kernel_impl_nocast in place of it nothing is cast.
STRIDED_ADD = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<"
    "at::native::CUDAFunctor_add<float>>(at::TensorIteratorBase &, const T1 &)::lambda>(int, T3)"
)


def test_types_are_those_that_kernels_name() -> None:
    product = call("aten::mm", "[[8, 4], [4, 2]]", NVJET)
    assert types_of(with_types(product)) == ["bfloat16", "bfloat16"]
    for kernel in (ADD, STRIDED_ADD.replace("gpu_kernel_impl", "gpu_kernel_impl_nocast")):
        added = with_types(call("aten::add", "[[8], [8], []]", kernel))
        assert types_of(added) == ["float32", "float32"]


@pytest.mark.parametrize(
    "unknown",
    [
        call("aten::mm", "[[8, 4], [4, 2]]"),
        call("aten::mm", "[[8, 4], [4, 2]]", "my_own_kernel"),
        # Two of its kernels name two types.
        call("aten::mm", "[[8, 4], [4, 2]]", NVJET, FP32),
        call("aten::add", "[[8], [8], []]", CASTING_ADD),
        call("aten::add", "[[8], [8], []]", STRIDED_ADD),
        # A mask is of another type.
        call("aten::where", "[[8], [8], [8]]", ADD),
        call("aten::copy_", "[[8], [8], []]", ADD),
    ],
)
def test_what_kernels_do_not_tell_stays_unknown(unknown: OpCall) -> None:
    assert with_types(unknown) is unknown


def test_recorded_types_are_left_as_they_are() -> None:
    recorded = call("aten::mm", "[[8, 4], [4, 2]]", NVJET, types='["float", "c10::Half"]')
    assert with_types(recorded) is recorded
