"""flex_attention's templates as inductor launches them, compared with torch's own counter."""

from typing import Any

import pytest

from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import Argument, OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.dtypes import named

counter: Any = pytest.importorskip("torch.utils.flop_counter")

# Batch, query heads, key heads, queries, keys, head sizes of scores and of values.
B, HQ, HK, S, T, D, V = 2, 8, 2, 512, 1024, 64, 128
QUERY, KEY, VALUE = (B, HQ, S, D), (B, HK, T, D), (B, HK, T, V)
OUTPUT, ROWS = (B, HQ, S, V), (B, HQ, S)
ONE_BLOCK = ((1, 1, 1), (1, 1, 1, 1))
CAUSAL = ((1, 1, 4), (1, 1, 4, 8))
ABSENT = (0,)


def tensor(shape: tuple[int, ...], dtype: str = "bfloat16") -> Tensor:
    return Tensor(shape, named(dtype))


def integers(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor(shape, "int32") for shape in shapes)


def floats(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor(shape, "float32") for shape in shapes)


INPUTS = tuple(map(tensor, (QUERY, KEY, VALUE)))


def cost(name: str, *arguments: Argument) -> Cost:
    found = cost_of(OpCall(name, arguments))
    assert found is not None
    return found


def forward(mask: tuple[tuple[int, ...], ...], *captured: Tensor) -> Cost:
    return cost(
        "triton_tem_fused_flex_attention_0",
        *INPUTS,
        *floats(ROWS, ROWS),
        *integers(*mask),
        *floats(ABSENT, ABSENT),
        *captured,
        tensor(OUTPUT),
    )


def test_without_a_block_mask_all_pairs_are_computed() -> None:
    result = forward(ONE_BLOCK)
    expected = counter.sdpa_flop_count(QUERY, (B, HQ, T, D), (B, HQ, T, V))
    assert result.matmul_flops() == result.full_attention_flops == expected
    keys_and_values = 2 * B * HK * T * (D + V)
    assert result.key_value_bytes == keys_and_values
    assert result.bytes_read == 2 * B * HQ * S * D + keys_and_values + 4 * 2
    assert result.bytes_written == 2 * B * HQ * S * V + 2 * 4 * B * HQ * S


def test_the_statistics_of_older_versions_are_one_tensor() -> None:
    arguments = (*INPUTS, *floats(ROWS), *integers(*ONE_BLOCK), tensor(OUTPUT))
    result = cost("triton_tem_fused_flex_attention_3", *arguments)
    assert result.bytes_written == 2 * B * HQ * S * V + 4 * B * HQ * S
    assert result.flops is not None


def test_a_block_mask_leaves_the_operations_unknown_and_the_bytes_known() -> None:
    result = forward(CAUSAL)
    assert result.flops is None
    assert result.bytes_moved() is not None
    assert any("block mask" in text for text in result.assumptions)


def test_what_the_functions_capture_is_read() -> None:
    bias = tensor((HQ, S), "float32")
    read, more = forward(ONE_BLOCK).bytes_read, forward(ONE_BLOCK, bias).bytes_read
    assert read is not None
    assert more == read + 4 * HQ * S


def test_the_backward_pass_does_five_products() -> None:
    result = cost(
        "triton_tem_fused_flex_attention_backward_zeros_1",
        *INPUTS,
        *floats(ROWS, ROWS),
        *map(tensor, (OUTPUT, QUERY, VALUE)),
        *integers(*ONE_BLOCK, *ONE_BLOCK),
        *floats(*[ABSENT] * 4),
        tensor(KEY),
    )
    repeated = (B, HQ, T, D), (B, HQ, T, V)
    expected = counter.sdpa_backward_flop_count(OUTPUT, QUERY, *repeated)
    # torch counts the scores that are computed again.
    assert result.matmul_flops() == expected
    assert result.recomputed_flops == 2 * B * HQ * S * T * D
    gradients = 2 * B * (HQ * S * D + HK * T * (D + V))
    assert result.bytes_written == gradients
    assert result.bytes_read == gradients + 2 * 4 * B * HQ * S + 2 * B * HQ * S * V + 4 * 4


def test_decoding_has_an_axis_of_grouped_heads() -> None:
    grouped = tensor((B, HK, HQ // HK, 1, D))
    partial = tensor((B, 16, HQ, 1, V), "float32")
    statistics = floats((B, 16, HQ, 1), (B, 16, HQ, 1))
    arguments = (grouped, *INPUTS[1:], *statistics, *integers(*ONE_BLOCK), partial)
    result = cost("triton_tem_fused_flex_attention_0", *arguments)
    assert result.matmul_flops() == 2 * B * HQ * T * (D + V)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        INPUTS,
        (tensor((32, 8)), tensor((8, 64)), tensor((32, 64)), tensor((32, 64))),
        (INPUTS[0], INPUTS[2], INPUTS[1], *floats(ROWS), tensor(OUTPUT)),
    ],
)
def test_other_arguments_are_no_attention(arguments: tuple[Tensor, ...]) -> None:
    for name in ("flex_attention_0", "flex_attention_backward_1"):
        assert cost_of(OpCall(f"triton_tem_fused_{name}", arguments)) is None
