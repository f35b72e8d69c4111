"""Closed forms of a transformer's work: FLOPs a token, and bytes a decoding step must read.

Chowdhery et al. 2022 (PaLM), appendix B: 6 N + 12 L H Q T FLOPs a token in training, N parameters
in matrix products, L layers, H Q the width of all query heads, T keys. A third of that is the
forward pass. Causal attention is counted in full there; half of it is the other convention.
"""

from dataclasses import dataclass
from typing import Literal

# decode: one token a sequence, with keys and values of all before it read from a cache.
Mode = Literal["training", "inference", "decode"]


@dataclass(frozen=True, kw_only=True)
class TransformerSize:
    """What is known of a model; its dimensions are all None where attention is left out."""

    parameters: int
    # Of a mixture of experts: those active per token.
    active_parameters: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    # Of low-rank adapters beside `parameters`, which are then frozen.
    adapter_parameters: int = 0
    # Of an input embedding that is no output head too.
    embedding_parameters: int = 0
    layers: int | None = None
    # Query heads times head size.
    attention_width: int | None = None
    # Key heads times head size: smaller with grouped queries.
    key_width: int | None = None
    # Keys that a query sees: the sequence, a sliding window, or the cache.
    keys: int | None = None

    @property
    def multiplied(self) -> int:
        """N: the parameters that one token is multiplied with, adapters aside."""
        met = self.parameters if self.active_parameters is None else self.active_parameters
        return met - self.embedding_parameters


@dataclass(frozen=True)
class TokenFlops:
    """FLOPs of one token."""

    weights: int
    # With every query meeting every key.
    attention: int

    @property
    def full(self) -> int:
        """With causal attention in full, as MFU is published."""
        return self.weights + self.attention

    @property
    def causal_half(self) -> int:
        """With half of the attention, which a causal mask leaves."""
        return self.weights + self.attention // 2


def model_flops(size: TransformerSize, mode: Mode) -> TokenFlops:
    """What one token needs, nothing computed twice: the numerator of MFU.

    Frozen weights need no gradient of their own: 4 N. Adapters need theirs: 6 N.
    """
    attention = _attention(size)
    adapters = size.adapter_parameters
    if mode != "training":
        return TokenFlops(2 * (size.multiplied + adapters), attention)
    return TokenFlops((4 if adapters else 6) * size.multiplied + 6 * adapters, 3 * attention)


def hardware_flops(size: TransformerSize) -> TokenFlops:
    """What one token of training executes under full activation checkpointing: HFU's numerator.

    The forward pass once more, 8 N in all. Scores that a fused attention recomputes come on
    top, but not here: they depend on the kernel.
    """
    model, forward = model_flops(size, "training"), model_flops(size, "inference")
    return TokenFlops(model.weights + forward.weights, model.attention + forward.attention)


def _attention(size: TransformerSize) -> int:
    """4 L H Q T: two products, two FLOPs a multiply-add. Grouped queries change nothing."""
    if size.layers is None or size.attention_width is None or size.keys is None:
        return 0
    return 4 * size.layers * size.attention_width * size.keys


def key_value_bytes(size: TransformerSize, sequences: int, bits: int) -> int | None:
    """Bytes of keys and values that one decoding step reads; None where dimensions are unknown."""
    if size.layers is None or size.key_width is None or size.keys is None:
        return None
    return 2 * size.layers * size.key_width * size.keys * sequences * bits // 8


def weight_bytes(size: TransformerSize, sequences: int, bits: int) -> int | None:
    """Bytes of weights that one decoding step reads, at most.

    `sequences` tokens meet min(E, sequences * experts_per_token) of E experts: fewer where some
    choose the same. None for a mixture whose experts are not told, unless all can be met.
    """
    held = size.parameters - size.embedding_parameters
    if size.active_parameters is None or size.active_parameters == size.parameters:
        read = held
    elif sequences == 1:
        read = size.multiplied
    elif size.experts is None or size.experts_per_token is None:
        return None
    else:
        experts, chosen = size.experts, size.experts_per_token
        # What a token does not meet is all experts but those it chooses.
        of_each = (size.parameters - size.active_parameters) // (experts - chosen)
        read = held - of_each * (experts - min(experts, sequences * chosen))
    return (read + size.adapter_parameters) * bits // 8
