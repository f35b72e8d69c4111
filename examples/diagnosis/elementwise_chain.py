"""Ten operators over one large tensor: each reads and writes all of it.

Fixed: torch.compile makes one kernel of them, which reads and writes it once.
"""

import torch
from loop import DEVICE, FIXED, repeat
from torch import Tensor, nn


class Chain(nn.Module):
    """A GELU written out, scaled and shifted."""

    def forward(self, x: Tensor) -> Tensor:
        inner = 0.79788456 * (x + 0.044715 * x * x * x)  # expected here
        return 0.5 * x * (1.0 + torch.tanh(inner)) + 0.25


x = torch.randn(1 << 28 if DEVICE == "cuda" else 1 << 22, device=DEVICE)
model = Chain()
run = torch.compile(model) if FIXED else model
with torch.inference_mode():
    repeat(lambda: run(x))
