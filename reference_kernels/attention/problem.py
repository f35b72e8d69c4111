"""Attention problems: what is computed, on which inputs, at which cost."""

import math
from typing import ClassVar

import torch

from gpuprof.reference_kernels.suite import TORCH_DTYPES, DeviceType, KnownWork, Problem
from gpuprof.roofline.cost_models.attention_pairs import kept_pairs
from gpuprof.roofline.cost_models.cost import Flops

MODES = ("forward", "causal-forward", "backward", "causal-backward", "decode")
# Tokens of a page of the cache, as vLLM has by default.
PAGE_TOKENS = 16
_FLOAT32_BYTES = 4


class AttentionProblem(Problem):
    """`B` sequences of `S` tokens, `H` query heads sharing `K` key and value heads of size `D`.

    forward: `query` (B, H, S, D), `key` and `value` (B, K, S, D); output (B, H, S, D).
    backward: those and `output_gradient` (B, H, S, D); gradients of query, key and value.
    decode: one query a sequence, `query` (B, H, D), on a cache in pages: `key_pages` and
    `value_pages` (pages, K, PAGE_TOKENS, D), `block_table` (B, pages a sequence; int32) and
    `lengths` (B; int32), where sequence b has S - b % PAGE_TOKENS tokens; output (B, H, D).

    FLOPs are the matrix products': 4 D a kept pair forward, 10 D backward (the scores again, dQ,
    dK, dP, dV). The softmax's vector operations, about 5 a pair, are not counted. Backward reads
    the forward's output and one float32 log-sum-exp a row beside its inputs.
    """

    family: ClassVar[str] = "attention"
    size_form: ClassVar[str] = "MODE:BxHxKxSxD, MODE of " + ", ".join(MODES)
    default_sizes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": (
            "causal-forward:4x32x32x4096x128",
            "forward:4x32x8x4096x128",
            "causal-backward:4x32x32x4096x128",
            "decode:64x32x8x4096x128",
        ),
        "cpu": (
            "causal-forward:1x4x4x512x64",
            "causal-backward:1x4x4x256x64",
            "decode:4x8x2x512x64",
        ),
    }
    default_dtypes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("bf16",),
        "cpu": ("fp32",),
    }

    def __init__(self, size: str, dtype: str, device: torch.device, *, seed: int = 0) -> None:
        super().__init__(size, dtype, device, seed=seed)
        mode, _, dimensions = size.partition(":")
        numbers = dimensions.split("x")
        if mode not in MODES or len(numbers) != 5 or not all(n.isdecimal() for n in numbers):
            raise ValueError(f"attention size {size!r} is not {self.size_form}")
        if dtype not in ("bf16", "fp16", "fp32"):
            raise ValueError(f"attention has no {dtype}: bf16, fp16, fp32")
        self.batch, self.heads, self.key_heads, self.length, self.head_size = map(int, numbers)
        if min(map(int, numbers)) < 1 or self.heads % self.key_heads:
            raise ValueError(f"attention size {size!r}: H must be a multiple of K, none 0")
        if mode == "decode" and self.length < PAGE_TOKENS:
            raise ValueError(f"attention size {size!r}: decode needs S of {PAGE_TOKENS} or more")
        self.mode = mode
        self.causal = mode.startswith("causal-")
        self.group = self.heads // self.key_heads
        self.scale = 1 / math.sqrt(self.head_size)
        self._draw(TORCH_DTYPES[dtype])

    @property
    def backward(self) -> bool:
        """Whether gradients are asked for."""
        return self.mode.endswith("backward")

    def _draw(self, dtype: torch.dtype) -> None:
        batch, heads, length, size = self.batch, self.heads, self.length, self.head_size
        if self.mode == "decode":
            self.query = self.random(batch, heads, size, dtype=dtype)
            each = math.ceil(length / PAGE_TOKENS)
            shape = (batch * each, self.key_heads, PAGE_TOKENS, size)
            self.key_pages = self.random(*shape, dtype=dtype)
            self.value_pages = self.random(*shape, dtype=dtype)
            order = torch.randperm(batch * each, device=self.device, generator=self.generator)
            self.block_table = order.to(torch.int32).view(batch, each)
            ragged = torch.arange(batch, device=self.device) % PAGE_TOKENS
            self.lengths = (length - ragged).to(torch.int32)
            return
        self.query = self.random(batch, heads, length, size, dtype=dtype)
        self.key = self.random(batch, self.key_heads, length, size, dtype=dtype)
        self.value = self.random(batch, self.key_heads, length, size, dtype=dtype)
        if self.backward:
            self.output_gradient = self.random(batch, heads, length, size, dtype=dtype)

    def pairs(self) -> int:
        """(Query, key) pairs of all heads and sequences that enter a softmax."""
        if self.mode == "decode":
            return self.heads * self._cached_tokens()
        kept = kept_pairs(self.length, self.length, causal=self.causal)
        return self.batch * self.heads * kept

    def visited_pairs(self, rows: int, columns: int) -> int:
        """Pairs of all whole tiles of `rows` queries and `columns` keys that hold a kept one."""
        visited = 0
        for first in range(0, self.length, rows):
            last = min(first + rows, self.length) if self.causal else self.length
            visited += rows * columns * math.ceil(last / columns)
        return visited * self.batch * self.heads

    def work(self) -> KnownWork:
        element = TORCH_DTYPES[self.dtype].itemsize
        product = (10 if self.backward else 4) * self.head_size
        flops = (Flops("matmul", self.dtype, product * self.pairs()),)
        if self.mode == "decode":
            rows = self.batch * self.heads * self.head_size * element
            cache = 2 * self._cached_tokens() * self.key_heads * self.head_size * element
            pages = sum(math.ceil(n / PAGE_TOKENS) for n in self._lengths())
            return KnownWork(flops, rows + cache + 4 * (pages + self.batch), rows)
        tokens = self.batch * self.length * self.head_size * element
        query, key = self.heads * tokens, self.key_heads * tokens
        if not self.backward:
            return KnownWork(flops, query + 2 * key, query)
        statistics = self.batch * self.heads * self.length * _FLOAT32_BYTES
        return KnownWork(flops, 3 * query + 2 * key + statistics, query + 2 * key)

    def reference(self) -> tuple[torch.Tensor, ...]:
        """By the formula in float64, one sequence at a time."""
        if self.mode == "decode":
            return (torch.stack([self._decoded(b) for b in range(self.batch)]),)
        each = [self._solved(b) for b in range(self.batch)]
        return tuple(torch.stack(parts) for parts in zip(*each, strict=True))

    def _solved(self, sequence: int) -> tuple[torch.Tensor, ...]:
        inputs = [t[sequence].double() for t in (self.query, self.key, self.value)]
        with torch.inference_mode(False), torch.set_grad_enabled(self.backward):
            inputs = [tensor.clone().requires_grad_(self.backward) for tensor in inputs]
            output = formula(*inputs, scale=self.scale, causal=self.causal)
            if not self.backward:
                return (output,)
            gradient = self.output_gradient[sequence].double()
            return torch.autograd.grad(output, inputs, gradient)

    def _decoded(self, sequence: int) -> torch.Tensor:
        key, value = (
            self.gathered(pages, sequence).double() for pages in (self.key_pages, self.value_pages)
        )
        query = self.query[sequence].double()[:, None]
        return formula(query, key, value, scale=self.scale, causal=False)[:, 0]

    def gathered(self, pages: torch.Tensor, sequence: int) -> torch.Tensor:
        """The tokens of one sequence from `pages`, in order: (K, tokens, D)."""
        tokens = pages[self.block_table[sequence].long()].transpose(0, 1).flatten(1, 2)
        return tokens[:, : self._lengths()[sequence]]

    @property
    def tolerance(self) -> float:
        return {"fp32": 1e-4, "fp16": 5e-3, "bf16": 2e-2}[self.dtype]

    def _lengths(self) -> list[int]:
        return [self.length - b % PAGE_TOKENS for b in range(self.batch)]

    def _cached_tokens(self) -> int:
        return sum(self._lengths())


def formula(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: float, causal: bool
) -> torch.Tensor:
    """softmax(Q K^T scale) V of (..., H, S, D) and (..., K, S, D), operator by operator."""
    group = query.shape[-3] // key.shape[-3]
    key, value = (tensor.repeat_interleave(group, -3) for tensor in (key, value))
    scores = query @ key.transpose(-1, -2) * scale
    if causal:
        kept = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~kept, -math.inf)
    return scores.softmax(-1) @ value
