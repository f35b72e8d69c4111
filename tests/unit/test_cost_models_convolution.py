"""Convolutions: operations by hand, argument orders of each library, gradients by mask."""

import gzip
import json
import math
from pathlib import Path

import pytest

from gpuprof.collectors import kineto
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import (
    Argument,
    MathMode,
    OpCall,
    Scalar,
    Tensor,
    parse_call,
)
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import named

OLD_TRACE = (
    Path(__file__).resolve().parents[3]
    / "shared" / "data" / "public" / "kineto" / "tb_plugin_resnet50_num_workers_0.pt.trace.json.gz"
)  # fmt: skip


def half(*shape: int) -> Tensor:
    return Tensor(shape, named("float16"))


def cost(name: str, *arguments: Argument) -> Cost:
    result = cost_of(OpCall(name, arguments))
    assert result is not None
    return result


def values(*texts: str) -> tuple[Scalar, ...]:
    return tuple(map(Scalar, texts))


# N=2, C_in=8, 15 x 15; C_out=12, groups 4, kernel 3, stride 2: out 7 x 7.
INPUTS, WEIGHT, BIAS = half(2, 8, 15, 15), half(12, 2, 3, 3), half(12)
PRODUCTS = 2 * 7 * 7 * 12 * 2 * 9


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (
            "aten::convolution",
            (BIAS, *values("[2, 2]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "4")),
        ),
        ("aten::conv2d", (BIAS, *values("[2, 2]", "[0, 0]", "[1, 1]", "4"))),
        ("aten::cudnn_convolution", values("[0, 0]", "[2, 2]", "[1, 1]", "4")),
        ("aten::miopen_convolution", (BIAS, *values("[0, 0]", "[2, 2]", "[1, 1]", "4"))),
        ("aten::mkldnn_convolution", (BIAS, *values("[0, 0]", "[2, 2]", "[1, 1]", "4"))),
        ("aten::cudnn_convolution_relu", (BIAS, *values("[2, 2]", "[0, 0]", "[1, 1]", "4"))),
        ("aten::_conv_depthwise2d", (*values("[3, 3]"), BIAS, *values("[2]", "[0]", "[1]"))),
    ],
)
def test_each_librarys_convolution_counts_the_same_products(
    name: str, arguments: tuple[Argument, ...]
) -> None:
    result = cost(name, INPUTS, WEIGHT, *arguments)
    assert result.flops == (Flops("matmul", "fp16", 2 * PRODUCTS),)
    bias = BIAS.elements if BIAS in arguments else 0
    assert result.bytes_read == 2 * (INPUTS.elements + WEIGHT.elements + bias)
    assert result.bytes_written == 2 * 2 * 12 * 7 * 7


def test_a_transposed_convolution_counts_its_input_positions() -> None:
    arguments = values("[2, 2]", "[1, 1]", "[2, 2]", "True", "[1, 1]", "3")
    result = cost("aten::convolution", half(2, 6, 5, 5), half(6, 3, 3, 3), None, *arguments)
    assert result.matmul_flops() == 2 * 2 * 5 * 5 * 6 * 3 * 9
    # (5 - 1) * 2 - 2 + 2 * 2 + 1 + 1 = 12
    assert result.bytes_written == 2 * 2 * 9 * 12 * 12


def test_an_input_without_batch_axis_counts_as_one() -> None:
    arguments = values("[1]", "[1]", "[1]", "1")
    result = cost("aten::conv1d", half(4, 20), half(6, 4, 3), None, *arguments)
    assert result.matmul_flops() == 2 * 20 * 6 * 4 * 3


def test_float32_uses_tf32_only_where_convolutions_may() -> None:
    full = Tensor((1, 2, 8), named("float32")), Tensor((3, 2, 1), named("float32")), None
    arguments = (*full, *values("[1]", "[0]", "[1]", "1"))
    for mode, precision in (
        (MathMode(tf32_convolution=True), "tf32"),
        (MathMode(tf32_matmul=True), "fp32"),
    ):
        result = cost_of(OpCall("aten::conv1d", arguments, mode))
        assert result is not None
        assert result.flops == (Flops("matmul", precision, 2 * 8 * 3 * 2),)


@pytest.mark.parametrize(
    ("mask", "gradients", "written"),
    [
        ("[True, True, True]", 2, INPUTS.elements + WEIGHT.elements + 12),
        ("[True, False, False]", 1, INPUTS.elements),
        ("[False, True, False]", 1, WEIGHT.elements),
        ("[False, False, True]", 0, 12),
    ],
)
def test_each_gradient_asked_for_costs_one_forward(mask: str, gradients: int, written: int) -> None:
    arguments = values("[12]", "[2, 2]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "4", mask)
    result = cost("aten::convolution_backward", half(2, 12, 7, 7), INPUTS, WEIGHT, *arguments)
    assert result.matmul_flops() == gradients * 2 * PRODUCTS
    assert result.bytes_written == 2 * written
    sums = [part.count for part in result.flops or () if part.kind == "vector"]
    assert sums == ([2 * 12 * 7 * 7] if mask.endswith("True]") else [])


def test_gradients_of_a_transposed_convolution_use_the_input_space() -> None:
    arguments = values(
        "[9]", "[2, 2]", "[1, 1]", "[2, 2]", "True", "[1, 1]", "3", "[True, True, False]"
    )
    result = cost(
        "aten::convolution_backward",
        half(2, 9, 12, 12),
        half(2, 6, 5, 5),
        half(6, 3, 3, 3),
        *arguments,
    )
    assert result.matmul_flops() == 2 * 2 * 2 * 5 * 5 * 6 * 3 * 9


@pytest.mark.parametrize("library", ["cudnn", "miopen"])
def test_an_input_gradient_of_old_torch_has_its_products(library: str) -> None:
    name = f"aten::{library}_convolution_backward_input"
    others = half(2, 12, 7, 7), WEIGHT, *values("[0, 0]", "[2, 2]", "[1, 1]", "4")
    result = cost(name, Scalar(""), *others)
    assert result.matmul_flops() == 2 * PRODUCTS
    read = 2 * (2 * 12 * 7 * 7 + WEIGHT.elements)
    assert (result.bytes_read, result.bytes_written) == (read, None)
    result = cost(name, Scalar("[2, 8, 15, 15]"), *others)
    assert (result.bytes_read, result.bytes_written) == (read, 2 * INPUTS.elements)


def test_a_weight_gradient_of_old_torch_needs_the_filter_s_size() -> None:
    name = "aten::cudnn_convolution_backward_weight"
    others = half(2, 12, 7, 7), INPUTS, *values("[0, 0]", "[2, 2]", "[1, 1]", "4")
    result = cost(name, Scalar(""), *others)
    assert (result.flops, result.bytes_written) == (None, None)
    result = cost(name, Scalar("[12, 2, 3, 3]"), *others)
    assert result.matmul_flops() == 2 * PRODUCTS
    assert result.bytes_written == 2 * WEIGHT.elements
    assert result.weight_bytes == 0


@pytest.mark.parametrize(
    ("kernels", "precision"),
    [
        (("volta_scudnn_128x64_relu_interior_nn_v1",), "fp32"),
        (("volta_sgemm_128x64_nt", "void winogradForwardData4x4<float, float>(x)"), "fp32"),
        (("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)",), "fp32"),
        (("volta_hcudnn_128x64_relu_interior_nn_v1",), "fp16"),
        (("volta_hcudnn_128x64_relu_interior_nn_v1", "volta_sgemm_128x64_nt"), None),
        (("volta_fp16_sgemm_fp16_128x64_nn", "cask_cudnn::computeOffsetsKernel(x)"), None),
    ],
)
def test_kernels_tell_the_type_of_operands_that_a_trace_left_out(
    kernels: tuple[str, ...], precision: str | None
) -> None:
    call = parse_call(
        "aten::cudnn_convolution_backward_input",
        "[[], [2, 12, 7, 7], [12, 2, 3, 3], [], [], [], [], [], [], []]",
        "[]",
        None,
        None,
        kernels=kernels,
    )
    assert call is not None
    result = cost_of(call)
    assert result is not None
    told = None if precision is None else (Flops("matmul", precision, 2 * PRODUCTS),)
    assert (result.flops, result.bytes_moved()) == (told, None)


@pytest.mark.skipif(not OLD_TRACE.exists(), reason="the public traces of ../shared are absent")
def test_input_gradients_of_a_recorded_resnet_have_the_products_of_their_shapes() -> None:
    name = "aten::cudnn_convolution_backward_input"
    with gzip.open(OLD_TRACE) as file:
        events = json.load(file)
    shapes = [event["args"]["Input dims"][1:3] for event in events if event.get("name") == name]
    products = sum(
        batch * height * width * math.prod(weight) for (batch, _, height, width), weight in shapes
    )
    ops = [op for op in analyze(kineto.read(OLD_TRACE)).ops if op.name == name]
    assert sum(op.calls for op in ops) == len(shapes) == 312
    counts = [part for op in ops for part in op.flops or ()]
    assert {(part.kind, part.precision) for part in counts} == {("matmul", "fp32")}
    assert sum(part.count for part in counts) == 2 * products


@pytest.mark.skipif(not OLD_TRACE.exists(), reason="the public traces of ../shared are absent")
def test_gradients_of_a_recorded_resnet_have_the_sizes_that_their_caller_recorded() -> None:
    with gzip.open(OLD_TRACE) as file:
        events = json.load(file)
    callers = [event for event in events if event.get("name") == "aten::cudnn_convolution_backward"]
    analysis = analyze(kineto.read(OLD_TRACE))
    for which in ("input", "weight"):
        name = f"aten::cudnn_convolution_backward_{which}"
        calls = [event for event in events if event.get("name") == name]
        products = moved = 0
        for call in calls:
            caller = max(
                (each for each in callers if each["ts"] <= call["ts"] < each["ts"] + each["dur"]),
                key=lambda each: each["ts"],
            )
            inputs, gradient, weight = caller["args"]["Input dims"][:3]
            products += gradient[0] * math.prod(gradient[2:]) * math.prod(weight)
            # float32: two of the three are read, the third is written.
            moved += 4 * sum(map(math.prod, (inputs, gradient, weight)))
        ops = [op for op in analysis.ops if op.name == name]
        assert sum(op.calls for op in ops) == len(calls) > 300
        assert sum(op.total_flops or 0 for op in ops) == 2 * products
        assert sum(op.total_bytes or 0 for op in ops) == moved


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (INPUTS, WEIGHT),
        (INPUTS, WEIGHT, None, *values("", "[0, 0]", "[1, 1]", "False", "[0, 0]", "4")),
        (INPUTS, WEIGHT, None, *values("[0, 0]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "4")),
        (INPUTS, WEIGHT, None, *values("[2, 2, 2]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "4")),
        (INPUTS, WEIGHT, None, *values("[2, 2]", "[0, 0]", "[9, 9]", "False", "[0, 0]", "4")),
        (half(8), WEIGHT, None, *values("[2, 2]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "4")),
        (INPUTS, half(4, 4), None, *values("[2, 2]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "4")),
    ],
)
def test_arguments_that_are_not_understood_have_no_cost(arguments: tuple[Argument, ...]) -> None:
    assert cost_of(OpCall("aten::convolution", arguments)) is None
    assert cost_of(OpCall("aten::convolution_backward", arguments)) is None


@pytest.mark.parametrize(
    ("kernel", "algorithm"),
    [
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(x)", "Winograd"),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f2x3_stride1_group.kd", "Winograd"),
        ("void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*)", "Fourier"),
        ("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", None),
    ],
)
def test_a_faster_algorithm_is_told_and_does_not_change_the_count(
    kernel: str, algorithm: str | None
) -> None:
    arguments = (INPUTS, WEIGHT, *values("[0, 0]", "[2, 2]", "[1, 1]", "4"))
    result = cost_of(OpCall("aten::cudnn_convolution", arguments, kernels=(kernel,)))
    assert result is not None
    assert result.matmul_flops() == 2 * PRODUCTS
    assert [algorithm in text for text in result.assumptions if algorithm] == (
        [True] if algorithm else []
    )
