"""Where attention operators keep their arguments.

Sources: pytorch aten/src/ATen/native/native_functions.yaml (2.13); flash-attn 2.7 and later,
flash_attn/flash_attn_interface.py; flash-attn 3, the schemas of flash_attn_3::fwd and bwd; vLLM's
builds of both, csrc/flash_attn/flash_api_torch_lib.cpp; AITER's calls as traces record them.
"""

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class AttentionSignature:
    """Where an attention operator keeps its arguments, as positions in its schema.

    Keys and values follow the query. None: the operator has no such argument.
    """

    # bhsd: batch, heads, sequence, head size; bshd: batch, sequence, heads, head size.
    layout: Literal["bhsd", "bshd"]
    causal: int | None = None
    # An integer argument: 0 no mask, 1 causal from the top left, 2 from the bottom right.
    mask_type: int | None = None
    bottom_right: bool = False
    bias: int | None = None
    # Whether the log-sum-exp is written: always, never, or by the flag at a position.
    log_sum_exp: bool | int = True
    # Cumulative sequence lengths of packed sequences, and their maxima; keys' follow queries'.
    starts: int | None = None
    maxima: int | None = None
    # window_size_left; window_size_right follows.
    window: int | None = None
    # The argument whose presence means that keys and values stand in a cache of pages, in any
    # order: (..., heads, head size).
    pages: int | None = None
    # Arguments whose presence hides how many keys are read (used lengths; not those of pages).
    unknown_if_present: tuple[int, ...] = ()
    backward: bool = False
    query: int = 0
    # Backward only: the forward's output and log-sum-exp.
    saved: tuple[int, int] | None = None


FORWARD: Final = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": AttentionSignature(
        "bhsd", causal=4, bias=5
    ),
    "aten::_flash_attention_forward": AttentionSignature(
        "bshd",
        causal=8,
        bottom_right=True,
        starts=3,
        maxima=5,
        window=11,
        pages=15,
        unknown_if_present=(13,),
    ),
    "aten::_efficient_attention_forward": AttentionSignature(
        "bshd",
        mask_type=9,
        bias=3,
        log_sum_exp=10,
        starts=4,
        maxima=6,
        unknown_if_present=(12, 13),
    ),
    "aten::_cudnn_attention_forward": AttentionSignature(
        "bhsd", causal=10, bias=3, log_sum_exp=8, starts=4, maxima=6
    ),
    "flash_attn::_flash_attn_forward": AttentionSignature(
        "bshd", causal=5, bottom_right=True, window=6
    ),
    "flash_attn::_flash_attn_varlen_forward": AttentionSignature(
        "bshd",
        causal=9,
        bottom_right=True,
        starts=3,
        maxima=5,
        window=10,
        pages=15,
        unknown_if_present=(16, 17),
    ),
    "_vllm_fa2_C::varlen_fwd": AttentionSignature(
        "bshd",
        causal=15,
        bottom_right=True,
        starts=4,
        maxima=10,
        window=16,
        pages=8,
        unknown_if_present=(6, 7),
    ),
    "_vllm_fa2_C::fwd_kvcache": AttentionSignature(
        "bshd",
        causal=14,
        bottom_right=True,
        window=15,
        pages=10,
        unknown_if_present=(3, 5, 8, 9),
    ),
    "aiter::mha_batch_prefill": AttentionSignature(
        "bshd",
        causal=12,
        bottom_right=True,
        log_sum_exp=False,
        starts=3,
        maxima=6,
        window=13,
        pages=5,
    ),
    **dict.fromkeys(
        ("flash_attn_3::fwd", "_vllm_fa3_C::fwd"),
        # New keys, used lengths, cache rows and left padding hide the lengths.
        AttentionSignature(
            "bshd",
            causal=24,
            bottom_right=True,
            starts=7,
            maxima=12,
            window=25,
            pages=14,
            unknown_if_present=(3, 5, 10, 11, 15, 16),
        ),
    ),
}
COMPOSITE_FORWARD: Final = {
    "aten::scaled_dot_product_attention": AttentionSignature(
        "bhsd", causal=5, bias=3, log_sum_exp=False
    ),
    "aten::_scaled_dot_product_flash_attention": AttentionSignature("bhsd", causal=4),
    "aten::_scaled_dot_product_efficient_attention": AttentionSignature(
        "bhsd", causal=6, bias=3, log_sum_exp=4
    ),
    "aten::_scaled_dot_product_cudnn_attention": AttentionSignature(
        "bhsd", causal=6, bias=3, log_sum_exp=4
    ),
    "aten::_scaled_dot_product_fused_attention_overrideable": AttentionSignature(
        "bhsd", causal=5, bias=3
    ),
}
BACKWARD: Final = {
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": AttentionSignature(
        "bhsd", causal=7, bias=8, saved=(4, 5), backward=True, query=1
    ),
    "aten::_flash_attention_backward": AttentionSignature(
        "bshd",
        causal=11,
        bottom_right=True,
        starts=6,
        maxima=8,
        window=15,
        saved=(4, 5),
        backward=True,
        query=1,
    ),
    "aten::_efficient_attention_backward": AttentionSignature(
        "bshd",
        mask_type=14,
        bias=4,
        starts=6,
        maxima=8,
        unknown_if_present=(18,),
        saved=(5, 10),
        backward=True,
        query=1,
    ),
    "aten::_cudnn_attention_backward": AttentionSignature(
        "bhsd", causal=14, bias=8, starts=9, maxima=11, saved=(4, 5), backward=True, query=1
    ),
    "flash_attn::_flash_attn_backward": AttentionSignature(
        "bshd", causal=11, bottom_right=True, window=12, saved=(4, 5), backward=True, query=1
    ),
    "flash_attn::_flash_attn_varlen_backward": AttentionSignature(
        "bshd",
        causal=15,
        bottom_right=True,
        starts=9,
        maxima=11,
        window=16,
        saved=(4, 5),
        backward=True,
        query=1,
    ),
    "flash_attn_3::bwd": AttentionSignature(
        "bshd",
        causal=16,
        bottom_right=True,
        starts=9,
        maxima=13,
        window=17,
        unknown_if_present=(11, 12),
        saved=(4, 5),
        backward=True,
        query=1,
    ),
}
COMPOSITE_BACKWARD: Final = {
    "aten::_scaled_dot_product_flash_attention_backward": AttentionSignature(
        "bhsd", causal=11, starts=6, maxima=8, saved=(4, 5), backward=True, query=1
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": AttentionSignature(
        "bhsd", causal=11, bias=4, saved=(5, 6), backward=True, query=1
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": AttentionSignature(
        "bhsd", causal=14, bias=8, starts=9, maxima=11, saved=(4, 5), backward=True, query=1
    ),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": AttentionSignature(
        "bhsd", causal=13, bias=4, saved=(6, 7), backward=True, query=1
    ),
}
