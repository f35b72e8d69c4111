"""Model problems: a stack of decoder blocks, what it costs and what is right."""

import math
from typing import ClassVar

import torch

from gpuprof.reference_kernels.elementwise.problem import rotary_tables
from gpuprof.reference_kernels.model.llama import Cache, LlamaBlock, LlamaDimensions, decoder
from gpuprof.reference_kernels.suite import TORCH_DTYPES, DeviceType, KnownWork, Problem
from gpuprof.roofline.cost_models.attention_pairs import kept_pairs
from gpuprof.roofline.cost_models.cost import Flops

MODES = ("prefill", "decode", "train")
# Llama 2 7B (Touvron et al., 2023) and Llama 3 8B (2024), and one for tests.
MODELS = {
    "7b": LlamaDimensions(hidden=4096, heads=32, key_heads=32, feed_forward=11008),
    "8b": LlamaDimensions(hidden=4096, heads=32, key_heads=8, feed_forward=14336),
    "tiny": LlamaDimensions(hidden=64, heads=4, key_heads=2, feed_forward=160),
}


class ModelProblem(Problem):
    """L blocks of a model on B sequences of S tokens, random weights of standard deviation
    1 / sqrt(inputs).

    prefill: `input` (B, S, hidden); outputs are the hidden states and the cache's keys and values.
    decode: `input` (B, 1, hidden), the last of S tokens, the others being in `cache`; the output is
    its hidden state. train: `input` and `output_gradient` (B, S, hidden); outputs are the gradients
    of input and weights. Without the optimizer: it would change the weights, an input.

    FLOPs are the matrix products' (2 a weight and token, 4 D a pair of causal attention; backward
    twice the first and 10 D a pair), not the norms', rotations' and activations'. Compulsory bytes
    are weights, input, cache and outputs; activations need not leave the chip by definition.
    """

    family: ClassVar[str] = "model"
    size_form: ClassVar[str] = "MODE:MODEL:LxBxS, MODE of prefill, decode, train; MODEL of " + (
        ", ".join(MODELS)
    )
    default_sizes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("prefill:7b:1x1x2048", "decode:7b:1x1x2048", "train:7b:1x1x2048"),
        "cpu": ("prefill:tiny:2x2x128", "decode:tiny:2x2x128", "train:tiny:2x2x128"),
    }
    default_dtypes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("bf16",),
        "cpu": ("fp32",),
    }

    def __init__(self, size: str, dtype: str, device: torch.device, *, seed: int = 0) -> None:
        super().__init__(size, dtype, device, seed=seed)
        mode, model, numbers = [*size.split(":"), "", ""][:3]
        counts = numbers.split("x")
        if (
            size.count(":") != 2
            or mode not in MODES
            or model not in MODELS
            or len(counts) != 3
            or not all(n.isdecimal() for n in counts)
            or min(map(int, counts)) < 1
        ):
            raise ValueError(f"model size {size!r} is not {self.size_form}")
        if dtype not in ("bf16", "fp16", "fp32"):
            raise ValueError(f"model has no {dtype}: bf16, fp16, fp32")
        self.layers, self.batch, self.length = map(int, counts)
        if mode == "decode" and self.length < 2:
            raise ValueError(f"model size {size!r}: decode needs S of 2 or more")
        self.mode = mode
        self.dimensions = MODELS[model]
        self.tokens = 1 if mode == "decode" else self.length
        self._draw(TORCH_DTYPES[dtype])

    def _draw(self, dtype: torch.dtype) -> None:
        shapes = self.dimensions.weight_shapes.values()
        self.blocks = tuple(
            LlamaBlock(*(self._weight(*shape, dtype=dtype) for shape in shapes))
            for _ in range(self.layers)
        )
        shape = (self.batch, self.tokens, self.dimensions.hidden)
        self.input = self.random(*shape, dtype=dtype)
        size = self.dimensions.head_size
        cosine, sine = rotary_tables(self.length, size, self.device)
        self.tables = cosine.to(dtype), sine.to(dtype)
        self.output_gradient = self.random(*shape, dtype=dtype) if self.mode == "train" else None
        of_cache = (self.layers, self.batch, self.dimensions.key_heads, self.length, size)
        self.cache = (
            Cache(self.random(*of_cache, dtype=dtype), self.random(*of_cache, dtype=dtype))
            if self.mode == "decode"
            else None
        )

    def _weight(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        drawn = self.random(*shape, dtype=torch.float32)
        # A norm's weight multiplies one number.
        scale = 1.0 if len(shape) == 1 else 1 / math.sqrt(shape[-1])
        return drawn.mul_(scale).to(dtype)

    def empty_cache(self) -> Cache:
        """Room for the keys and values of all tokens."""
        shape = (
            self.layers,
            self.batch,
            self.dimensions.key_heads,
            self.length,
            self.dimensions.head_size,
        )
        dtype = TORCH_DTYPES[self.dtype]
        keys, values = (torch.empty(shape, dtype=dtype, device=self.device) for _ in range(2))
        return Cache(keys, values)

    @property
    def weights(self) -> tuple[torch.Tensor, ...]:
        """All weights, block after block."""
        return tuple(weight for block in self.blocks for weight in block.weights)

    def work(self) -> KnownWork:
        of_products = sum(weight.numel() for weight in self.weights if weight.ndim == 2)
        linear = 2 * of_products * self.batch * self.tokens
        if self.mode == "decode":
            pairs = self.length
        else:
            pairs = kept_pairs(self.length, self.length, causal=True)
        pairs *= self.layers * self.batch * self.dimensions.heads
        attention = 4 * self.dimensions.head_size * pairs
        if self.mode == "train":
            linear, attention = 3 * linear, attention + 10 * self.dimensions.head_size * pairs
        weights = sum(weight.nbytes for weight in self.weights)
        states = self.input.nbytes
        element = self.input.element_size()
        size = self.dimensions.key_heads * self.dimensions.head_size
        token = 2 * self.layers * self.batch * size * element
        read, written = weights + states, states
        if self.mode == "decode":
            read, written = read + token * (self.length - 1), written + token
        elif self.mode == "prefill":
            written += token * self.length
        else:
            read, written = read + states, written + weights
        return KnownWork((Flops("matmul", self.dtype, linear + attention),), read, written)

    def reference(self) -> tuple[torch.Tensor, ...]:
        """The same function in float64."""
        with torch.inference_mode(False):
            x = self.input.double()
            blocks = tuple(
                LlamaBlock(*(weight.double() for weight in block.weights)) for block in self.blocks
            )
            tables = self.tables[0].double(), self.tables[1].double()
            if self.output_gradient is None:
                kept = self.cache or self.empty_cache()
                cache = Cache(kept.keys.double(), kept.values.double())
                with torch.no_grad():
                    states = decoder(x, blocks, self.dimensions, tables, cache)
                return (states,) if self.mode == "decode" else (states, cache.keys, cache.values)
            inputs = (x, *(weight for block in blocks for weight in block.weights))
            for tensor in inputs:
                tensor.requires_grad_()
            with torch.enable_grad():
                states = decoder(x, blocks, self.dimensions, tables, None)
            return torch.autograd.grad(states, inputs, self.output_gradient.double())

    @property
    def tolerance(self) -> float:
        """Rounding between operators adds up over blocks, as the square root of their number."""
        one = {"fp32": 1e-4, "fp16": 5e-3, "bf16": 3e-2}[self.dtype]
        return one * math.sqrt(self.layers)
