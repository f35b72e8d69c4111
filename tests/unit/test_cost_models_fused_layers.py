"""Fused layers of vLLM, SGLang, AITER and Liger, with the shapes that traces record."""

import pytest

from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import Argument, OpCall, Scalar, Tensor
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import named


def bf16(*shape: int) -> Tensor:
    return Tensor(shape, named("bfloat16"))


def cost(name: str, *arguments: Argument) -> Cost:
    result = cost_of(OpCall(name, arguments))
    assert result is not None
    return result


@pytest.mark.parametrize("name", ["_C::silu_and_mul", "sgl_kernel::silu_and_mul"])
def test_a_gate_reads_both_halves_and_writes_one(name: str) -> None:
    result = cost(name, bf16(10, 64), bf16(10, 128))
    assert result.flops == (Flops("vector", "fp32", 5 * 640),)
    assert (result.bytes_read, result.bytes_written) == (2 * 1280, 2 * 640)


def test_ligers_silu_mul_reads_two_and_writes_one_and_the_reverse_backward() -> None:
    forward = cost("LigerSiLUMulFunction", bf16(10, 64), bf16(10, 64))
    backward = cost("LigerSiLUMulFunctionBackward", bf16(10, 64))
    assert (forward.bytes_read, forward.bytes_written) == (2 * 1280, 2 * 640)
    assert (backward.bytes_read, backward.bytes_written) == (3 * 1280, 2 * 1280)


@pytest.mark.parametrize("name", ["_C::rms_norm", "sgl_kernel::rmsnorm", "aiter::rmsnorm"])
def test_rms_norm_takes_its_output_first(name: str) -> None:
    result = cost(name, bf16(10, 64), bf16(10, 64), bf16(64), Scalar("1e-06"))
    assert result.flops == (Flops("vector", "fp32", 4 * 640),)
    assert (result.bytes_read, result.bytes_written) == (2 * (640 + 64), 2 * 640)


def test_rms_norm_with_a_residual_writes_both() -> None:
    vllm = cost("_C::fused_add_rms_norm", bf16(10, 64), bf16(10, 64), bf16(64), Scalar("1e-6"))
    rows = (bf16(10, 64),) * 4
    aiter = cost("aiter::add_rmsnorm", *rows, bf16(64), Scalar("1e-6"))
    assert vllm == aiter
    called = "vllm::rocm_aiter_rmsnorm2d_fwd_with_add"
    assert vllm == cost(called, bf16(10, 64), bf16(10, 64), bf16(64), Scalar("1e-6"))
    assert vllm.flops == (Flops("vector", "fp32", 5 * 640),)
    assert (vllm.bytes_read, vllm.bytes_written) == (2 * (1280 + 64), 2 * 1280)


def test_rotary_embedding_moves_the_rotated_part_of_each_head() -> None:
    # 32 tokens, 64 query and 8 key heads of 128, of which 64 elements rotate.
    result = cost(
        "_C::rotary_embedding",
        Tensor((32,), named("int64")),
        bf16(32, 64 * 128),
        bf16(32, 8 * 128),
        Scalar("128"),
        bf16(4096, 64),
        Scalar("True"),
    )
    rotated = 32 * 72 * 64
    assert result.flops == (Flops("vector", "fp32", 3 * rotated),)
    assert result.bytes_read == 8 * 32 + 2 * rotated + 2 * 32 * 64
    assert result.bytes_written == 2 * rotated


def test_ligers_rope_rotates_whole_heads() -> None:
    q, k, angles = bf16(1, 4, 32, 64), bf16(1, 2, 32, 64), bf16(1, 32, 64)
    result = cost("LigerRopeFunction", q, k, angles, angles)
    assert result.flops == (Flops("vector", "fp32", 3 * 6 * 32 * 64),)
    assert result.bytes_moved() == 2 * 2 * 6 * 32 * 64 + 2 * 2 * 32 * 64


def test_a_cache_write_moves_its_rows_in_the_caches_dtype() -> None:
    cache = Tensor((100, 16, 8, 64), named("float8_e4m3fn"))
    rows, slots = bf16(32, 8, 64), Tensor((32,), named("int64"))
    result = cost("_C_cache_ops::reshape_and_cache_flash", rows, rows, cache, cache, slots)
    assert (result.flops, result.bytes_read) == ((), 2 * 2 * 32 * 512 + 8 * 32)
    assert result.bytes_written == 2 * 32 * 512


@pytest.mark.parametrize(
    "name",
    [
        "_C::silu_and_mul",
        "_C::rms_norm",
        "_C::fused_add_rms_norm",
        "_C::rotary_embedding",
        "LigerRopeFunction",
        "LigerRMSNormFunction",
        "LigerSiLUMulFunction",
        "LigerSiLUMulFunctionBackward",
        "sglang::store_cache",
    ],
)
def test_a_call_without_arguments_has_no_cost(name: str) -> None:
    assert cost_of(OpCall(name, ())) is None


def test_ligers_backward_functions_take_gradients_alone() -> None:
    q, k = bf16(2, 8, 16, 64), bf16(2, 2, 16, 64)
    rope = cost("LigerRopeFunctionBackward", q, k)
    assert rope.flops == (Flops("vector", "fp32", 3 * (q.elements + k.elements)),)
    assert rope.bytes_read == 2 * (q.elements + k.elements + 2 * 16 * 64)
    assert rope.bytes_written == 2 * (q.elements + k.elements)
    norm = cost("LigerRMSNormFunctionBackward", bf16(10, 64))
    assert norm.flops == (Flops("vector", "fp32", 9 * 640),)
    assert norm.bytes_read == 2 * (640 + 640 + 64) + 4 * 10
    assert norm.bytes_written == 2 * (640 + 64)


def test_aiters_norm_gives_its_output_back() -> None:
    result = cost("aiter::rms_norm", bf16(10, 64), bf16(64), Scalar("1e-06"))
    assert result == cost("vllm::rocm_aiter_rms_norm", bf16(10, 64), bf16(64), Scalar("1e-05"))
    assert (result.bytes_read, result.bytes_written) == (2 * (640 + 64), 2 * 640)
