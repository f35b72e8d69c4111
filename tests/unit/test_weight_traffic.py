"""Which bytes of a call are weights, and which keys and values."""

import pytest

from gpuprof.roofline.cost_models.call import Argument, OpCall, Scalar, Tensor
from gpuprof.roofline.dtypes import named
from gpuprof.roofline.utilization.weight_traffic import key_value_bytes, weight_bytes


def bf16(*shape: int, strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, named("bfloat16"), strides)


def call(name: str, *arguments: Argument) -> OpCall:
    return OpCall(name, arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::mm", (bf16(8, 32), bf16(32, 16))),
        ("aten::addmm", (bf16(16), bf16(8, 32), bf16(32, 16))),
        ("aten::linear", (bf16(8, 32), bf16(16, 32), bf16(16))),
        # A vector is multiplied from the right: the matrix stands first.
        ("aten::addmv", (bf16(16), bf16(16, 32), bf16(32))),
    ],
)
def test_the_weight_of_a_product_is_its_matrix_beside_the_activations(
    name: str, arguments: tuple[Argument, ...]
) -> None:
    assert weight_bytes(call(name, *arguments)) == 2 * 32 * 16
    assert key_value_bytes(call(name, *arguments)) == 0


def test_scales_of_narrow_weights_are_read_too() -> None:
    fp8, scale = Tensor((32, 16), named("float8_e4m3fn")), Tensor((16,), named("float32"))
    activations = Tensor((8, 32), named("float8_e4m3fn"))
    assert weight_bytes(call("aten::_scaled_mm", activations, fp8, None, scale)) == 32 * 16 + 4 * 16


def test_a_step_reads_no_more_experts_than_it_has_rows() -> None:
    experts = bf16(8, 32, 16)
    assert weight_bytes(call("aten::_grouped_mm", bf16(3, 32), experts)) == 3 * 2 * 32 * 16
    assert weight_bytes(call("aten::_grouped_mm", bf16(300, 32), experts)) == 8 * 2 * 32 * 16


def test_a_weight_of_an_unknown_type_leaves_the_bytes_unknown() -> None:
    assert weight_bytes(call("aten::mm", bf16(8, 32), Tensor((32, 16), None))) is None


def test_keys_and_values_of_grouped_queries_are_read_once() -> None:
    query, cache = bf16(1, 32, 1, 128), bf16(1, 8, 2048, 128)
    name = "aten::_scaled_dot_product_flash_attention"
    attention = call(name, query, cache, cache, Scalar("0."), Scalar("False"))
    assert key_value_bytes(attention) == 2 * 2 * 8 * 2048 * 128
    assert weight_bytes(attention) == 0


def test_written_out_attention_reads_them_as_the_second_operand() -> None:
    assert key_value_bytes(call("aten::bmm", bf16(32, 1, 128), bf16(32, 128, 64))) == (
        2 * 32 * 128 * 64
    )
    # Keys that an expanded axis shares between heads count once.
    shared = bf16(32, 128, 64, strides=(0, 64, 1))
    assert key_value_bytes(call("aten::bmm", bf16(32, 1, 128), shared)) == 2 * 128 * 64


def test_of_a_paged_cache_the_part_that_is_read_is_not_known() -> None:
    cache = bf16(1, 4096, 8, 128)
    arguments = [bf16(1, 1, 32, 128), cache, cache, *[None] * 10, Tensor((1,), named("int32"))]
    assert key_value_bytes(call("aten::_flash_attention_forward", *arguments)) is None
