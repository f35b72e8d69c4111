"""Train a small Llama-style transformer on random tokens: the program that `make demo` profiles.

    gpuprof run examples/train_transformer.py

Nothing here knows about gpuprof. The size follows the device: 30 ms of work a step on an H200,
about a tenth of a second on a laptop's CPU. So do the steps: a GPU gets as many as its clock needs
to settle, and ten more to be timed.
"""

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Size:
    """Dimensions of the model and of one batch, and how many batches there are."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    batch: int
    sequence: int
    steps: int


CPU_SIZE = Size(
    layers=2,
    hidden=256,
    heads=4,
    feed_forward=688,
    vocabulary=1024,
    batch=4,
    sequence=128,
    steps=24,
)
GPU_SIZE = Size(
    layers=4,
    hidden=2048,
    heads=16,
    feed_forward=5504,
    vocabulary=32000,
    batch=4,
    sequence=2048,
    steps=200,
)


def matmul_flops(size: Size) -> tuple[int, int]:
    """Matmul FLOPs of one forward and one backward pass, in closed form.

    Every weight is used once per token (2 FLOPs a multiply-add), twice more in the backward pass.
    Attention is counted in full, as if it were not causal: two products forward, five backward
    because flash attention recomputes the scores.
    """
    tokens = size.batch * size.sequence
    weights_per_layer = 4 * size.hidden**2 + 3 * size.hidden * size.feed_forward
    weights = size.layers * weights_per_layer + size.hidden * size.vocabulary
    product = 2 * size.batch * size.sequence**2 * size.hidden * size.layers
    return 2 * tokens * weights + 2 * product, 4 * tokens * weights + 5 * product


class Attention(nn.Module):
    """Causal self-attention with rotary position embedding."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.query_key_value = nn.Linear(size.hidden, 3 * size.hidden, bias=False)
        self.output = nn.Linear(size.hidden, size.hidden, bias=False)
        head = size.hidden // size.heads
        frequencies = 10000.0 ** (-torch.arange(0, head, 2) / head)
        angles = torch.arange(size.sequence)[:, None] * frequencies[None, :]
        self.register_buffer("cosine", angles.cos().repeat(1, 2))
        self.register_buffer("sine", angles.sin().repeat(1, 2))

    def rotate(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * self.cosine + torch.cat((-second, first), dim=-1) * self.sine

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, hidden = x.shape
        query, key, value = (
            part.view(batch, sequence, self.heads, -1).transpose(1, 2)
            for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(
            self.rotate(query), self.rotate(key), value, is_causal=True
        )
        return self.output(mixed.transpose(1, 2).reshape(batch, sequence, hidden))


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.gate = nn.Linear(size.hidden, size.feed_forward, bias=False)
        self.up = nn.Linear(size.hidden, size.feed_forward, bias=False)
        self.down = nn.Linear(size.feed_forward, size.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(size.hidden)
        self.attention = Attention(size)
        self.feed_forward_norm = nn.RMSNorm(size.hidden)
        self.feed_forward = FeedForward(size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    """Embedding, blocks, norm and an untied output head."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.hidden)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden)
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train(steps: int | None) -> float:
    """Run `steps` training steps, or as many as the device gets, and return the last loss."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size, dtype = (GPU_SIZE, torch.bfloat16) if device == "cuda" else (CPU_SIZE, torch.float32)
    torch.manual_seed(0)
    model = Transformer(size).to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    loss = torch.zeros(())
    for _ in range(size.steps if steps is None else steps):
        tokens = torch.randint(size.vocabulary, (size.batch, size.sequence + 1), device=device)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int)
    print(f"last loss {train(parser.parse_args().steps):.3f}")
