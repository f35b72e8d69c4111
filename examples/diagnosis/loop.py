"""What the programs of this folder share: the loop, its own clock, and the model they run."""

import json
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FIXED = "--fixed" in sys.argv
"""Whether to run the program as it should be, and not as it is found."""

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA:
    # The work is small there: a second thread would mostly wait for the first.
    torch.set_num_threads(1)


def repeat(step: Callable[[], object], *, seconds: float = 3.0 if FIXED else 20.0) -> None:
    """Run `step` again and again, and print what one took in the last third, in ms, as JSON.

    The seconds begin after the first step, which may compile for longer than they last.
    """
    step()
    _wait()
    begin, steps, since = time.perf_counter(), 0, 0.0
    while True:
        step()
        now = time.perf_counter()
        if not since and now - begin > seconds * 2 / 3:
            _wait()
            since, steps = time.perf_counter(), 0
        elif since:
            steps += 1
            if now - begin > seconds and steps >= 3:
                break
    _wait()
    print(json.dumps({"step_ms": (time.perf_counter() - since) / steps * 1e3}))


def _wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


class Block(nn.Module):
    """A decoder block: causal attention and a gated feed-forward network."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.RMSNorm(hidden)
        self.query_key_value = nn.Linear(hidden, 3 * hidden, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.feed_forward_norm = nn.RMSNorm(hidden)
        self.gate_and_up = nn.Linear(hidden, 8 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor, cache: Tensor | None = None) -> Tensor:
        batch, length, hidden = x.shape
        shape = (batch, length, 3, self.heads, hidden // self.heads)
        qkv = self.query_key_value(self.attention_norm(x)).view(shape).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        if cache is not None:
            cache[0, :, :, -length:], cache[1, :, :, -length:] = key, value
            key, value = cache[0], cache[1]
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=cache is None)
        x = x + self.output(mixed.transpose(1, 2).reshape(x.shape))
        gate, up = self.gate_and_up(self.feed_forward_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    """Some blocks, one after the other."""

    def __init__(self, *, layers: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))

    def forward(self, x: Tensor, caches: list[Tensor] | None = None) -> Tensor:
        for index, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[index])
        return x


class Convolutions(nn.Module):
    """Layers that keep a GPU busy for milliseconds; on a CPU they see an eighth of each axis."""

    def __init__(self) -> None:
        super().__init__()
        channels, layers = (128, 8) if CUDA else (4, 1)
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in range(layers)
        )
        self.last = nn.Linear(channels, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = torch.relu(self.first(images if CUDA else images[:, :, ::8, ::8]))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.last(x.mean((2, 3)))
