"""Attention: both causal conventions, layouts, grouped queries, windows, packed sequences."""

import itertools
import json
from pathlib import Path

import pytest

from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.attention_pairs import kept_pairs
from gpuprof.roofline.cost_models.call import Argument, OpCall, Scalar, Tensor, parse_call
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import named

CASE = Path(__file__).resolve().parents[3] / "shared" / "cases" / "flops-attention" / "trace.json"


def bf16(*shape: int) -> Tensor:
    return Tensor(shape, named("bfloat16"))


def cost(name: str, *arguments: Argument) -> Cost:
    result = cost_of(OpCall(name, arguments))
    assert result is not None
    return result


def values(*texts: str) -> tuple[Scalar, ...]:
    return tuple(map(Scalar, texts))


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (5, 5), (3, 8), (8, 3), (1, 7)])
def test_kept_pairs_equal_a_count_of_the_mask(queries: int, keys: int) -> None:
    windows = (None, 0, 1, 2, 5)
    for bottom_right, left, right in itertools.product((False, True), windows, windows):
        shift = keys - queries if bottom_right else 0
        mask = sum(
            (left is None or j >= i + shift - left) and (right is None or j <= i + shift + right)
            for i in range(queries)
            for j in range(keys)
        )
        assert mask == kept_pairs(
            queries, keys, bottom_right=bottom_right, window_left=left, window_right=right
        )


def test_causal_keeps_the_triangle_with_its_diagonal() -> None:
    assert kept_pairs(1024, 1024, causal=True) == 1024 * 1025 // 2
    assert kept_pairs(1, 4096, causal=True, bottom_right=True) == 4096
    assert kept_pairs(1, 4096, causal=True) == 1


def test_a_causal_sliding_window_keeps_its_band() -> None:
    length, window = 100, 16
    expected = length * window - window * (window - 1) // 2
    assert kept_pairs(length, length, causal=True, window_left=window - 1) == expected


def test_grouped_queries_count_query_heads_and_read_key_heads() -> None:
    result = cost(
        "aten::_scaled_dot_product_flash_attention",
        bf16(2, 32, 1024, 128),
        bf16(2, 8, 1024, 128),
        bf16(2, 8, 1024, 128),
        *values("0.", "False", "False"),
    )
    assert result.flops == (Flops("matmul", "bf16", 34359738368),)
    assert result.full_attention_flops is None
    assert result.bytes_read == 2 * 2 * 1024 * 128 * (32 + 8 + 8)
    # The output, and a float32 log-sum-exp for each row.
    assert result.bytes_written == 2 * 2 * 32 * 1024 * 128 + 4 * 2 * 32 * 1024


def test_causal_gives_both_conventions() -> None:
    result = cost(
        "aten::_scaled_dot_product_flash_attention",
        bf16(2, 32, 1024, 128),
        bf16(2, 8, 1024, 128),
        bf16(2, 8, 1024, 128),
        *values("0.", "True", "False"),
    )
    assert result.matmul_flops() == 17196646400
    assert result.full_attention_flops == 34359738368


def test_sequence_comes_before_heads_in_the_flash_layout() -> None:
    shape = bf16(2, 1024, 32, 128)
    result = cost(
        "aten::_flash_attention_forward",
        shape, shape, shape, None, None,
        *values("1024", "1024", "0.", "False", "False"),
    )  # fmt: skip
    assert result.matmul_flops() == 34359738368


def test_backward_is_two_and_a_half_times_forward_for_equal_head_sizes() -> None:
    q = bf16(1, 4, 64, 32)
    forward = cost("aten::_scaled_dot_product_flash_attention_for_cpu", q, q, q)
    backward = cost(
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        q, q, q, q, q, Tensor((1, 4, 64), named("float32")), *values("0.", "False"),
    )  # fmt: skip
    assert 2 * (backward.matmul_flops() or 0) == 5 * (forward.matmul_flops() or 0)


def test_unequal_head_sizes_are_counted_apart() -> None:
    # MLA: keys of 192, values of 128.
    q, v = bf16(1, 16, 256, 192), bf16(1, 16, 256, 128)
    forward = cost("aten::scaled_dot_product_attention", q, q, v)
    assert forward.matmul_flops() == 2 * 16 * 256 * 256 * (192 + 128)
    assert forward.bytes_written == 2 * 16 * 256 * 128
    backward = cost(
        "aten::_scaled_dot_product_efficient_attention_backward",
        v, q, q, v, None, v, Tensor((1, 16, 256), named("float32")), None, None,
        *values("0.", "[True, True, True, False]", "False"),
    )  # fmt: skip
    assert backward.matmul_flops() == 2 * 16 * 256 * 256 * (3 * 192 + 2 * 128)
    assert backward.bytes_written == 2 * 16 * 256 * (192 + 192 + 128)


def test_decode_attends_all_keys_although_causal() -> None:
    result = cost(
        "flash_attn::_flash_attn_forward",
        bf16(8, 1, 32, 128), bf16(8, 4096, 8, 128), bf16(8, 4096, 8, 128),
        *values("0.", "0.088", "True"),
    )  # fmt: skip
    assert result.matmul_flops() == 536870912
    assert result.full_attention_flops is None
    assert result.bytes_read == 2 * 8 * 32 * 128 + 2 * 2 * 8 * 8 * 4096 * 128


def varlen(total: int, sequences: int, longest: int) -> Cost:
    return cost(
        "flash_attn::_flash_attn_varlen_forward",
        *(bf16(total, 4, 64),) * 3,
        *(Tensor((sequences + 1,), named("int32")),) * 2,
        *values(str(longest), str(longest), "0.", "0.125", "True", "-1", "-1"),
    )


def test_packed_sequences_of_one_length_are_counted_exactly() -> None:
    assert varlen(96, 3, 32).matmul_flops() == 3 * 4 * 4 * 64 * (32 * 33 // 2)
    assert varlen(32, 1, 32).matmul_flops() == 4 * 4 * 64 * (32 * 33 // 2)


def test_packed_sequences_of_several_lengths_have_bytes_but_no_count() -> None:
    result = varlen(80, 3, 32)
    assert result.flops is None
    assert result.full_attention_flops is None
    assert result.bytes_read == 3 * 2 * 80 * 4 * 64
    assert any("lengths" in text for text in result.assumptions)


def test_flash_attention_3_keeps_its_flags_after_its_optional_tensors() -> None:
    q, kv = bf16(2, 64, 8, 128), bf16(2, 64, 2, 128)
    forward = cost(
        "flash_attn_3::fwd", q, kv, kv, *(None,) * 20, *values("0.1", "True", "-1", "-1")
    )
    assert forward.matmul_flops() == 2 * 8 * (64 * 65 // 2) * 4 * 128
    cached = cost(
        "flash_attn_3::fwd",
        q, kv, kv, kv, kv, *(None,) * 18, *values("0.1", "True", "-1", "-1"),
    )  # fmt: skip
    assert cached.flops is None
    assert cached.bytes_read is None


def test_attention_on_eight_bit_inputs_has_an_unknown_output() -> None:
    q = Tensor((2, 64, 8, 128), named("float8_e4m3fn"))
    result = cost("flash_attn_3::fwd", q, q, q, *(None,) * 20, *values("0.1", "False", "-1", "-1"))
    assert result.flops == (Flops("matmul", "fp8", 2 * 8 * 64 * 64 * 4 * 128),)
    assert result.bytes_written is None


def test_a_sliding_window_limits_the_pairs() -> None:
    q = bf16(1, 128, 2, 64)
    result = cost(
        "flash_attn::_flash_attn_forward", q, q, q, *values("0.", "0.1", "True", "15", "0")
    )
    assert result.matmul_flops() == 4 * 2 * 64 * (128 * 16 - 16 * 15 // 2)
    # In full each query sees a whole window of 16 keys, not all 128.
    assert result.full_attention_flops == 4 * 2 * 64 * 128 * 16


def test_a_window_wider_than_the_sequence_changes_nothing() -> None:
    q = bf16(1, 128, 2, 64)
    wide = cost(
        "flash_attn::_flash_attn_forward", q, q, q, *values("0.", "0.1", "True", "4095", "0")
    )
    assert wide.full_attention_flops == 4 * 2 * 64 * 128 * 128


STARTS = Tensor((5,), named("int32"))
PAGES = Tensor((4, 60), named("int32"))


def vllm_paged(rows: int, longest: int, keys: int, *, causal: str = "True") -> Cost:
    """Four sequences on a cache of 1,000 pages of 16 keys."""
    cache = bf16(1000, 16, 2, 64)
    return cost(
        *("_vllm_fa2_C::varlen_fwd", bf16(rows, 8, 64), cache, cache, bf16(rows, 8, 64)),
        *(STARTS, STARTS, Tensor((4,), named("int32")), None, PAGES, None),
        *values(str(longest), str(keys), "0.", "0.1", "False", causal, "-1", "-1"),
    )


def test_a_paged_decode_has_no_count_for_its_lengths_are_not_recorded() -> None:
    result = vllm_paged(4, 1, 900)
    assert (result.flops, result.bytes_read) == (None, None)
    assert any("lengths" in text for text in result.assumptions)


def test_a_paged_prefill_without_a_prefix_is_counted_exactly() -> None:
    result = vllm_paged(4 * 256, 256, 256)
    assert result.matmul_flops() == 4 * 8 * (256 * 257 // 2) * 4 * 64
    assert result.full_attention_flops == 4 * 8 * 256 * 256 * 4 * 64
    # The keys and values of the sequences, not the cache.
    assert result.bytes_read == 2 * (4 * 256 * 8 * 64 + 2 * 4 * 256 * 2 * 64)
    # Sequences of several lengths, a longer cache, or keys of another text tell nothing.
    assert vllm_paged(4 * 256 - 1, 256, 256).flops is None
    assert vllm_paged(4 * 256, 256, 300).flops is None
    assert vllm_paged(4 * 256, 256, 256, causal="False").flops is None


def test_a_cache_of_single_slots_is_one_of_pages() -> None:
    q, cache = bf16(4 * 256, 32, 128), bf16(835874, 8, 128)
    result = cost(
        *("aiter::mha_batch_prefill", q, cache, cache, STARTS, STARTS),
        *(Tensor((1280,), named("int32")), *values("256", "256", "0.", "0.1", "0.", "False")),
        *values("True", "-1", "-1"),
    )
    assert result.matmul_flops() == 4 * 32 * (256 * 257 // 2) * 4 * 128
    assert result.bytes_written == 2 * q.elements


def test_an_unrecorded_causal_flag_gives_the_full_count_only() -> None:
    q = bf16(1, 4, 64, 32)
    result = cost("aten::_scaled_dot_product_flash_attention", q, q, q, *values("", "", "", ""))
    assert result.flops is None
    assert result.full_attention_flops == 4 * 4 * 64 * 64 * 32


def test_an_efficient_mask_of_type_two_is_aligned_at_the_bottom_right() -> None:
    q, kv = bf16(1, 2, 4, 32), bf16(1, 10, 4, 32)
    counts = [
        cost(
            "aten::_efficient_attention_forward",
            q, kv, kv, None, None, None, None, None, *values("0.", kind, "False"),
        ).matmul_flops()
        for kind in ("0", "1", "2")
    ]  # fmt: skip
    assert counts == [4 * 4 * 32 * pairs for pairs in (20, 3, 19)]


@pytest.mark.skipif(not CASE.exists(), reason="the shared cases are not here")
def test_the_case_flops_attention() -> None:
    events = json.loads(CASE.read_text())["traceEvents"]
    counted = []
    for event in events:
        if event["cat"] == "cpu_op":
            args = event["args"]
            texts = (
                json.dumps(args[field]) if field in args else None
                for field in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
            )
            call = parse_call(event["name"], *texts)
            assert call is not None
            result = cost_of(call)
            assert result is not None
            counted.append((result.matmul_flops(), result.full_attention_flops))
    assert counted == [
        (17196646400, 34359738368),
        (34359738368, None),
        (12582912, None),
        (536870912, None),
    ]
    # The last is a decode: keys and values of all heads, and one query a sequence.
    assert result.bytes_read == 134217728 + 2 * 8 * 32 * 128
