"""Inductor's fused Triton kernels, from the arguments that a trace shows of them."""

import math
from pathlib import Path

import pytest

from gpuprof.collectors import kineto
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import Argument, OpCall, Scalar, Tensor
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.cost_models.inductor import operators_of
from gpuprof.roofline.dtypes import named

RECORDINGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "recordings"


def half(*shape: int) -> Tensor:
    return Tensor(shape, named("float16"))


def cost(name: str, *arguments: Argument | int) -> Cost:
    parsed = (Scalar(str(each)) if isinstance(each, int) else each for each in arguments)
    result = cost_of(OpCall(name, tuple(parsed)))
    assert result is not None
    return result


def vector(count: int) -> tuple[Flops, ...]:
    return (Flops("vector", "fp32", count),)


@pytest.mark.parametrize(
    ("fused", "operators"),
    [
        ("add_mul", ("add", "mul")),
        ("_unsafe_view_add_native_layer_norm", ("_unsafe_view", "add", "native_layer_norm")),
        ("add_mean_mul_pow_rsqrt", ("add", "mean", "mul", "pow", "rsqrt")),
        ("_softmax_backward_data_mul", ("_softmax_backward_data", "mul")),
        ("native_dropout_backward_threshold_backward",
         ("native_dropout_backward", "threshold_backward")),
        ("_to_copy_add_convolution_relu", ("_to_copy", "add", "convolution", "relu")),
        ("mul_secret", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_kernel_s_name_lists_its_operators(fused: str, operators: tuple[str, ...] | None) -> None:
    assert operators_of(fused) == operators


def test_a_pointwise_kernel_with_an_output_of_its_own() -> None:
    result = cost("triton_poi_fused_add_mul_0", half(8, 64), half(64), half(8, 64), 512)
    assert result.flops == vector(2 * 512)
    assert (result.bytes_read, result.bytes_written) == (2 * (512 + 64), 2 * 512)


def test_a_pointwise_kernel_that_updates_its_first_tensor() -> None:
    # A vector of weights is no output of a loop over 512 elements.
    result = cost("triton_poi_fused_add_mul_0", half(8, 64), half(8, 64), half(64), 512)
    assert (result.bytes_read, result.bytes_written) == (2 * (512 + 512 + 64), 2 * 512)
    alone = cost("triton_poi_fused_relu_3", half(8, 64), 512)
    assert (alone.bytes_read, alone.bytes_written) == (1024, 1024)


def test_a_matrix_product_s_buffer_behind_a_tensor_of_higher_rank_is_read() -> None:
    result = cost("triton_poi_fused__unsafe_view_mul_silu_2", half(1, 8, 64), half(8, 64), 512)
    assert result.flops == vector(5 * 512)
    assert (result.bytes_read, result.bytes_written) == (2 * 1024, 2 * 512)


def test_a_tensor_that_is_only_filled_is_not_read() -> None:
    result = cost("triton_poi_fused_zeros_0", half(8, 64), 512)
    assert (result.flops, result.bytes_read, result.bytes_written) == ((), 0, 1024)


def test_a_reduction_writes_one_element_a_row() -> None:
    result = cost("triton_per_fused_sum_1", half(8, 64), half(8), 8, 64)
    assert result.flops == vector(512)
    assert (result.bytes_read, result.bytes_written) == (1024, 16)


def test_sizes_of_dynamic_shapes_stand_before_the_loops() -> None:
    result = cost("triton_red_fused_mean_mul_1", half(8, 64), half(8), 7, 8, 64)
    assert result.flops == vector(2 * 512)


def test_of_an_embedding_only_the_rows_that_the_loop_reads_count() -> None:
    indices = Tensor((8,), named("int64"))
    result = cost("triton_poi_fused_embedding_0", indices, half(50000, 64), half(8, 64), 512)
    assert (result.flops, result.bytes_read, result.bytes_written) == ((), 64 + 1024, 1024)


def test_what_a_slice_leaves_of_a_tensor_is_unknown_without_the_source() -> None:
    """x[:, :8] + 1 of a tensor with 64 columns; x[:, :32] + x[:, 32:] has the same name."""
    result = cost("triton_poi_fused_add_slice_0", half(64, 64), half(64, 8), 512)
    assert result.flops == vector(512)
    assert (result.bytes_read, result.bytes_written) == (None, 1024)
    # Nothing is left out of a tensor that the loop reads whole.
    result = cost("triton_poi_fused_add_slice_0", half(8, 64), half(8, 64), 512)
    assert (result.bytes_read, result.bytes_written) == (1024, 1024)
    # Of an operator that is not known nothing tells: pooling reads all, a lookup a few rows.
    assert cost("triton_poi_fused_secret_0", half(64, 64), half(32, 32), 1024).bytes_read is None


@pytest.mark.parametrize(
    ("loads", "stores", "read"),
    [(1, 1, 512), (2, 1, 1024), (9, 1, 4096), (1, 0, None)],
)
def test_loads_in_the_source_bound_what_is_read(loads: int, stores: int, read: int | None) -> None:
    arguments = half(64, 64), half(64, 8), Scalar("512")
    call = OpCall(
        "triton_poi_fused_add_slice_0",
        arguments,
        argument_names=("in_ptr0", "out_ptr0", "xnumel"),
        argument_accesses=(loads, stores, 0),
    )
    result = cost_of(call)
    assert result is not None
    assert result.bytes_read == (None if read is None else 2 * read)
    assert result.bytes_written == 1024


def test_loops_that_fit_no_tensor_leave_the_operations_unknown() -> None:
    result = cost("triton_poi_fused_add_0", half(8, 64), half(8, 64), 500)
    assert result.flops is None
    assert result.bytes_moved() == 2048


def test_operators_that_are_not_known_leave_the_operations_unknown() -> None:
    result = cost("triton_poi_fused_0", half(8, 64), half(8, 64), 512)
    assert result.flops is None
    assert result.bytes_moved() == 2048


def test_a_template_is_a_matrix_product() -> None:
    result = cost("triton_tem_fused_addmm_relu_7", half(32, 8), half(8, 64), half(64), half(32, 64))
    assert result.matmul_flops() == 2 * 32 * 8 * 64
    assert result.bytes_read == 2 * (32 * 8 + 8 * 64 + 64)
    wrong = half(32, 8), half(9, 64), half(32, 64)
    assert cost_of(OpCall("triton_tem_fused_mm_7", wrong)) is None
    right = half(32, 8), half(8, 64), half(32, 64)
    assert cost_of(OpCall("triton_tem_fused__unsafe_view_mm_7", right)) is not None
    assert cost_of(OpCall("triton_tem_fused_flex_attention_7", right)) is None


def test_a_template_adds_two_products() -> None:
    """A @ B + C @ D, as low-rank adapters make it."""
    operands = half(32, 8), half(8, 64), half(32, 8), half(8, 64)
    result = cost("triton_tem_fused_add_mm_3", *operands, half(32, 64))
    assert result.matmul_flops() == 2 * (2 * 32 * 8 * 64)
    assert result.weight_bytes == 2 * (2 * 8 * 64)
    assert result.bytes_read == 2 * 2 * (32 * 8 + 8 * 64)
    # An epilogue that scales by a column and adds a row.
    epilogue = half(32, 8), half(8, 64), half(32, 1), half(1, 64)
    result = cost("triton_tem_fused_add_mm_3", *epilogue, half(32, 64))
    assert result.matmul_flops() == 2 * 32 * 8 * 64


def test_a_recorded_gate_moves_what_its_definition_says() -> None:
    path = RECORDINGS / "h100_block_compile.json.gz"
    if not path.exists():
        pytest.skip("the recordings of ../shared are absent")
    ops = analyze(kineto.read(path)).ops
    (gate,) = (op for op in ops if op.name == "triton_poi_fused__unsafe_view_mul_silu_2")
    elements = math.prod((1, 2048, 11008))
    assert gate.flops == vector(3 * 5 * elements)
    # The product of the two branches replaces one of them.
    assert gate.total_bytes == 3 * 2 * 3 * elements
