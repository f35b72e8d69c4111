"""vLLM's fused experts: products by hand, and what the arguments leave open."""

import pytest

from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import Argument, OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.dtypes import named


def of(dtype: str, *shape: int) -> Tensor:
    return Tensor(shape, named(dtype))


def arguments(tokens: int, weights: str = "bfloat16") -> tuple[Argument, ...]:
    """8 experts of 16 -> 2 * 32 -> 16, two for each token."""
    return (
        of("bfloat16", tokens, 16), of(weights, 8, 64, 16), of(weights, 8, 16, 32),
        of("float32", tokens, 2), of("int32", tokens, 2),
    )  # fmt: skip


NAME = "vllm::outplace_fused_experts"
PER_EXPERT = 64 * 16 + 16 * 32


@pytest.mark.parametrize(("weights", "precision"), [("bfloat16", "bf16"), ("float8_e4m3fn", "fp8")])
def test_each_token_meets_two_experts(weights: str, precision: str) -> None:
    cost = cost_of(OpCall(NAME, arguments(10, weights)))
    assert cost is not None
    assert cost.flops == (Flops("matmul", precision, 2 * 10 * 2 * PER_EXPERT),)
    # Twenty choices among eight experts: how many of these were met is not recorded.
    assert (cost.bytes_read, cost.weight_bytes, cost.bytes_written) == (None, None, 2 * 160)


def test_the_experts_of_one_token_are_different() -> None:
    cost = cost_of(OpCall(NAME, arguments(1)))
    assert cost is not None
    assert cost.weight_bytes == 2 * 2 * PER_EXPERT
    assert cost.bytes_read == 2 * 16 + 2 * 4 + 2 * 4 + 2 * 2 * PER_EXPERT


@pytest.mark.parametrize(
    "call",
    [
        (*arguments(10), of("int32", 16)),  # an expert map: some experts are elsewhere
        arguments(10, "int8"),
        (*arguments(10)[:1], of("uint8", 8, 64, 8), *arguments(10)[2:]),
        arguments(10)[:4],
    ],
)
def test_packed_weights_and_experts_on_other_ranks_are_unknown(call: tuple[Argument, ...]) -> None:
    assert cost_of(OpCall(NAME, call)) is None


@pytest.mark.parametrize("name", ["vllm::moe_forward", "vllm::unified_attention_with_output"])
def test_what_vllm_finds_by_the_layer_s_name_stays_unknown(name: str) -> None:
    assert cost_of(OpCall(name, (of("bfloat16", 32, 64), of("bfloat16", 32, 8)))) is None
