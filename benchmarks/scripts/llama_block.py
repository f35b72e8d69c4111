"""One training step of a Llama-2-7B block; a tenth of its width where there is no GPU."""

import torch
import torch.nn.functional as F
from self_timing import run
from torch import Tensor, nn

ON_GPU = torch.cuda.is_available()
HIDDEN, HEADS, FEED_FORWARD, BATCH, SEQUENCE = (
    (4096, 32, 11008, 2, 2048) if ON_GPU else (256, 4, 688, 2, 128)
)
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.output = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)
        self.up = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)
        self.down = nn.Linear(FEED_FORWARD, HIDDEN, bias=False)
        self.first_norm = nn.LayerNorm(HIDDEN)
        self.second_norm = nn.LayerNorm(HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, _ = x.shape
        query, key, value = (
            part.view(batch, sequence, HEADS, -1).transpose(1, 2)
            for part in self.query_key_value(self.first_norm(x)).split(HIDDEN, -1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, sequence, HIDDEN))
        y = self.second_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


torch.manual_seed(0)
model = Block().to(DEVICE, DTYPE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
x = torch.randn(BATCH, SEQUENCE, HIDDEN, device=DEVICE, dtype=DTYPE)


def step() -> None:
    model(x).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


run(step, steps=40)
