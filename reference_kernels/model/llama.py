"""The decoder itself, as a function of its weights: Llama's block (Touvron et al., 2023).

RMS norm, grouped-query attention with rotary embedding, residual; RMS norm, SwiGLU, residual. A
stack of blocks, without embedding and vocabulary.
"""

from dataclasses import dataclass, fields

import torch
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from gpuprof.reference_kernels.elementwise.problem import rotated

EPSILON = 1e-5


@dataclass(frozen=True)
class LlamaDimensions:
    """Sizes of a block: D = hidden / heads."""

    hidden: int
    heads: int
    key_heads: int
    feed_forward: int

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors of a block, in the order of `LlamaBlock`'s fields."""
        projected = (self.heads + 2 * self.key_heads) * self.head_size
        return {
            "attention_norm": (self.hidden,),
            "query_key_value": (projected, self.hidden),
            "attention_output": (self.hidden, self.hidden),
            "feed_forward_norm": (self.hidden,),
            "gate": (self.feed_forward, self.hidden),
            "up": (self.feed_forward, self.hidden),
            "down": (self.hidden, self.feed_forward),
        }


@dataclass(frozen=True)
class LlamaBlock:
    """Weights of a block, as (outputs, inputs)."""

    attention_norm: torch.Tensor
    query_key_value: torch.Tensor
    attention_output: torch.Tensor
    feed_forward_norm: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor

    @property
    def weights(self) -> tuple[torch.Tensor, ...]:
        """The fields, in order."""
        return tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class Cache:
    """Keys (rotated) and values, (layers, B, K, S, D)."""

    keys: torch.Tensor
    values: torch.Tensor


def decoder(
    x: torch.Tensor,
    blocks: tuple[LlamaBlock, ...],
    dimensions: LlamaDimensions,
    tables: tuple[torch.Tensor, torch.Tensor],
    cache: Cache | None,
) -> torch.Tensor:
    """Hidden states (B, T, hidden) after all blocks.

    The T tokens are the last of the cache's S, whose `tables` (S, D / 2) hold cosines and sines;
    their keys and values are written there. Without a cache T is S.
    """
    for index, block in enumerate(blocks):
        normal = rms_norm(x, (dimensions.hidden,), block.attention_norm, EPSILON)
        x = x + _attention(normal, block, index, dimensions, tables, cache)
        normal = rms_norm(x, (dimensions.hidden,), block.feed_forward_norm, EPSILON)
        inner = silu(linear(normal, block.gate)) * linear(normal, block.up)
        x = x + linear(inner, block.down)
    return x


def _attention(
    x: torch.Tensor,
    block: LlamaBlock,
    index: int,
    dimensions: LlamaDimensions,
    tables: tuple[torch.Tensor, torch.Tensor],
    cache: Cache | None,
) -> torch.Tensor:
    heads, key_heads, size = dimensions.heads, dimensions.key_heads, dimensions.head_size
    batch, tokens, _ = x.shape
    projected = linear(x, block.query_key_value).view(batch, tokens, -1, size)
    query, key, value = torch.split(projected, [heads, key_heads, key_heads], -2)
    cosine, sine = (table[-tokens:] for table in tables)
    query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    if cache is not None:
        cache.keys[index, :, :, -tokens:] = key
        cache.values[index, :, :, -tokens:] = value
        if tokens < cache.keys.shape[-2]:
            key, value = cache.keys[index], cache.values[index]
    attended = scaled_dot_product_attention(
        query, key, value, is_causal=tokens > 1, enable_gqa=heads > key_heads
    )
    return linear(attended.transpose(1, 2).reshape(batch, tokens, -1), block.attention_output)
