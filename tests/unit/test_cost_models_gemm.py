"""Products: operations by hand, precision by dtype and setting, bytes of distinct elements."""

import pytest

from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import Argument, MathMode, OpCall, Scalar, Tensor, TensorList
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import named


def tensor(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, named(dtype), strides)


EXACT = MathMode()


def cost(name: str, *arguments: Argument, mode: MathMode = EXACT) -> Cost:
    result = cost_of(OpCall(name, arguments, mode))
    assert result is not None
    return result


def test_mm_counts_two_operations_a_product_and_each_matrix_once() -> None:
    result = cost("aten::mm", tensor(64, 32, dtype="bfloat16"), tensor(32, 16, dtype="bfloat16"))
    assert result.flops == (Flops("matmul", "bf16", 2 * 64 * 32 * 16),)
    assert result.bytes_read == 2 * (64 * 32 + 32 * 16)
    assert result.bytes_written == 2 * 64 * 16


def test_an_empty_product_is_zero_operations() -> None:
    result = cost("aten::mm", tensor(0, 32), tensor(32, 16))
    assert result.matmul_flops() == 0
    assert result.bytes_moved() == 4 * 32 * 16


@pytest.mark.parametrize(
    ("dtype", "mode", "precision"),
    [
        ("float64", MathMode(), "fp64"),
        ("float32", MathMode(), "fp32"),
        ("float32", MathMode(tf32_matmul=True), "tf32"),
        ("float32", MathMode(tf32_convolution=True), "fp32"),
        ("float16", MathMode(tf32_matmul=True), "fp16"),
        ("bfloat16", MathMode(), "bf16"),
        ("int8", MathMode(), "int8"),
    ],
)
def test_precision_follows_the_dtype_and_the_float32_setting(
    dtype: str, mode: MathMode, precision: str
) -> None:
    result = cost("aten::mm", tensor(4, 4, dtype=dtype), tensor(4, 4, dtype=dtype), mode=mode)
    assert result.flops == (Flops("matmul", precision, 128),)


def test_a_complex_product_is_four_real_ones() -> None:
    result = cost("aten::mm", tensor(4, 4, dtype="complex64"), tensor(4, 4, dtype="complex64"))
    assert result.flops == (Flops("matmul", "fp32", 4 * 128),)


def test_an_unknown_dtype_leaves_operations_and_bytes_unknown() -> None:
    result = cost("aten::mm", Tensor((4, 4), None), Tensor((4, 4), None))
    assert result.flops is None
    assert result.bytes_moved() is None


def test_addmm_reads_its_addend_unless_beta_is_zero() -> None:
    operands = tensor(16), tensor(64, 32), tensor(32, 16)
    with_bias = cost("aten::addmm", *operands, Scalar("1"), Scalar("1"))
    without = cost("aten::addmm", *operands, Scalar("0"), Scalar("1"))
    assert with_bias.matmul_flops() == without.matmul_flops() == 65536
    assert with_bias.bytes_read == 4 * (16 + 64 * 32 + 32 * 16)
    assert without.bytes_read == 4 * (64 * 32 + 32 * 16)


def test_an_expanded_batch_is_read_once() -> None:
    result = cost(
        "aten::bmm",
        tensor(4, 64, 32, dtype="bfloat16", strides=(0, 32, 1)),
        tensor(4, 32, 16, dtype="bfloat16"),
    )
    assert result.matmul_flops() == 262144
    assert result.bytes_moved() == 16384


def test_linear_folds_its_leading_axes() -> None:
    result = cost("aten::linear", tensor(2, 3, 8), tensor(5, 8), tensor(5))
    assert result.matmul_flops() == 2 * 6 * 8 * 5
    assert result.bytes_written == 4 * 6 * 5


@pytest.mark.parametrize(
    ("left", "right", "output", "inner"),
    [
        ((4,), (4,), 1, 4),
        ((3, 4), (4,), 3, 4),
        ((4,), (4, 5), 5, 4),
        ((3, 4), (4, 5), 15, 4),
        ((2, 1, 3, 4), (7, 4, 5), 2 * 7 * 15, 4),
    ],
)
def test_matmul_broadcasts_as_numpy_does(
    left: tuple[int, ...], right: tuple[int, ...], output: int, inner: int
) -> None:
    result = cost("aten::matmul", tensor(*left), tensor(*right))
    assert result.matmul_flops() == 2 * output * inner
    assert result.bytes_written == 4 * output


def fp8(*shape: int) -> Tensor:
    return tensor(*shape, dtype="float8_e4m3fn")


def test_scaled_mm_counts_at_fp8_and_writes_the_dtype_it_is_told() -> None:
    scales = tensor(), tensor()
    told = cost("aten::_scaled_mm", fp8(512, 256), fp8(256, 128), *scales, None, None, Scalar("15"))
    assert told.flops == (Flops("matmul", "fp8", 33554432),)
    assert told.bytes_read == 512 * 256 + 256 * 128 + 2 * 4
    assert told.bytes_written == 2 * 512 * 128
    untold = cost("aten::_scaled_mm", fp8(512, 256), fp8(256, 128), *scales, None, None, None)
    assert untold.bytes_written == 512 * 128
    unrecorded = cost(
        "aten::_scaled_mm", fp8(512, 256), fp8(256, 128), *scales, None, None, Scalar("")
    )
    assert unrecorded.matmul_flops() == 33554432
    assert unrecorded.bytes_written is None


def test_a_packed_fp4_product_has_twice_the_recorded_inner_size() -> None:
    packed = "float4_e2m1fn_x2"
    scales = (tensor(64 * 8, dtype="float8_e4m3fn"), tensor(32 * 8, dtype="float8_e4m3fn"))
    result = cost(
        "aten::_scaled_mm",
        tensor(64, 64, dtype=packed),
        tensor(64, 32, dtype=packed),
        *scales,
        None,
        None,
        Scalar("15"),
    )
    assert result.flops == (Flops("matmul", "fp4", 2 * 64 * 128 * 32),)
    assert result.bytes_read == 64 * 64 + 64 * 32 + 96 * 8


def test_scales_in_lists_take_their_dtype_from_the_recipe() -> None:
    result = cost(
        "aten::_scaled_mm_v2",
        fp8(64, 128),
        fp8(128, 32),
        TensorList((Tensor((64, 4), None),)),
        Scalar("[3]"),
        Scalar("[0]"),
        TensorList((Tensor((32, 4), None),)),
        Scalar("[3]"),
        Scalar("[0]"),
        None,
        Scalar("15"),
    )
    assert result.bytes_read == 64 * 128 + 128 * 32 + (64 + 32) * 4
    assert result.bytes_written == 2 * 64 * 32


def test_weights_stored_in_int8_and_int4_count_at_the_activations_precision() -> None:
    inputs = tensor(16, 256, dtype="bfloat16")
    int8 = cost(
        "aten::_weight_int8pack_mm",
        inputs,
        tensor(64, 256, dtype="int8"),
        tensor(64, dtype="bfloat16"),
    )
    assert int8.flops == (Flops("matmul", "bf16", 2 * 16 * 256 * 64),)
    assert int8.bytes_read == 2 * 16 * 256 + 64 * 256 + 2 * 64
    # 64 columns in groups of 8; 256 / (8 * 16) = 2; int32 words of 8 values.
    int4 = cost(
        "aten::_weight_int4pack_mm",
        inputs,
        tensor(8, 2, 32, 4, dtype="int32"),
        Scalar("128"),
        tensor(2, 64, 2, dtype="bfloat16"),
    )
    assert int4.flops == (Flops("matmul", "bf16", 2 * 16 * 256 * 64),)
    assert int4.bytes_read == 2 * 16 * 256 + 64 * 256 // 2 + 2 * 2 * 64 * 2
    assert int4.bytes_written == 2 * 16 * 64


@pytest.mark.parametrize(
    ("left", "right", "products", "outputs"),
    [
        ((100, 32), (4, 32, 16), 100 * 32 * 16, 100 * 16),
        ((4, 20, 32), (32, 60), 20 * 32 * 60, 20 * 60),
        ((20, 100), (100, 16), 20 * 100 * 16, 4 * 20 * 16),
        ((4, 20, 32), (4, 32, 16), 4 * 20 * 32 * 16, 4 * 20 * 16),
    ],
)
def test_grouped_products_do_each_row_once(
    left: tuple[int, ...], right: tuple[int, ...], products: int, outputs: int
) -> None:
    offsets = None if len(left) == len(right) == 3 else tensor(4, dtype="int32")
    result = cost(
        "aten::_grouped_mm",
        tensor(*left, dtype="bfloat16"),
        tensor(*right, dtype="bfloat16"),
        offsets,
    )
    assert result.matmul_flops() == 2 * products
    assert result.bytes_written == 2 * outputs


def test_grouped_products_touch_no_more_experts_than_there_are_rows() -> None:
    few = cost(
        "aten::_grouped_mm",
        tensor(3, 32, dtype="bfloat16"),
        tensor(64, 32, 16, dtype="bfloat16"),
        tensor(64, dtype="int32"),
    )
    assert few.bytes_read == 2 * (3 * 32 + 3 * 32 * 16) + 4 * 64


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::mm", ()),
        ("aten::mm", (tensor(2, 3), tensor(4, 5))),
        ("aten::mm", (tensor(2, 3, 4), tensor(4, 5))),
        ("aten::mm", (Scalar("1"), tensor(4, 5))),
        ("aten::bmm", (tensor(2, 3, 4), tensor(3, 4, 5))),
        ("aten::addmm", (None, tensor(2, 3), tensor(3, 4))),
        ("aten::linear", (tensor(2, 3), tensor(5, 4))),
        ("aten::matmul", (tensor(), tensor(3, 4))),
        ("aten::matmul", (tensor(2, 3, 4), tensor(3, 4, 5))),
        ("aten::_scaled_mm", (tensor(2, 3),)),
        ("aten::_grouped_mm", (tensor(2, 3), tensor(3, 4))),
        ("aten::_weight_int4pack_mm", (tensor(2, 3), tensor(3))),
    ],
)
def test_arguments_that_are_not_understood_have_no_cost(
    name: str, arguments: tuple[Argument, ...]
) -> None:
    assert cost_of(OpCall(name, arguments)) is None


def test_products_of_serving_libraries() -> None:
    a, b = tensor(64, 32, dtype="bfloat16"), tensor(16, 32, dtype="bfloat16")
    aiter = cost("aiter::gemm_a16w16", a, b, None, Scalar("15"), None, None, None)
    vllm = cost("vllm::rocm_unquantized_gemm", a, b, None)
    for result in (aiter, vllm):
        assert result.flops == (Flops("matmul", "bf16", 2 * 64 * 32 * 16),)
        assert result.bytes_moved() == 2 * (64 * 32 + 16 * 32 + 64 * 16)


def test_eight_bit_products_of_serving_libraries_read_their_scales() -> None:
    a, b = tensor(64, 32, dtype="float8_e4m3fn"), tensor(32, 16, dtype="float8_e4m3fn")
    scales = tensor(64, 1), tensor(1, 16)
    out = tensor(64, 16, dtype="bfloat16")
    vllm = cost("_C::cutlass_scaled_mm", out, a, b, *scales, None)
    sglang = cost("sgl_kernel::fp8_scaled_mm", a, b, *scales, Scalar("15"), None)
    for result in (vllm, sglang):
        assert result.flops == (Flops("matmul", "fp8", 2 * 64 * 32 * 16),)
        assert result.bytes_read == 64 * 32 + 32 * 16 + 4 * (64 + 16)
        assert result.bytes_written == 2 * 64 * 16


def test_a_four_bit_product_of_bytes_has_twice_the_recorded_inner_size() -> None:
    a, b = tensor(64, 32, dtype="uint8"), tensor(16, 32, dtype="uint8")
    block = tensor(64, 4, dtype="float8_e4m3fn"), tensor(16, 4, dtype="float8_e4m3fn")
    out = tensor(64, 16, dtype="bfloat16")
    result = cost("_C::cutlass_scaled_fp4_mm", out, a, b, *block, tensor(1))
    assert result.flops == (Flops("matmul", "fp4", 2 * 64 * 64 * 16),)
    assert result.bytes_read == 64 * 32 + 16 * 32 + 4 * (64 + 16) + 4
