"""Convolutions: operations by hand, argument orders of each library, gradients by mask."""

import pytest

from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import Argument, MathMode, OpCall, Scalar, Tensor
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import named


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
