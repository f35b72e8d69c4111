"""Four hundred operators on a few numbers: the device waits for the host that launches them.

Fixed: the same operators as one replay of a CUDA graph.
"""

import torch
from loop import DEVICE, FIXED, repeat
from torch import Tensor, nn


class Small(nn.Module):
    """Two hundred times two operators."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(200):
            x = x * 1.0001 + 0.5  # expected here
        return x


x = torch.randn(4096, device=DEVICE)
model = Small()
with torch.inference_mode():
    if FIXED:
        model = torch.cuda.make_graphed_callables(model, (x,), num_warmup_iters=3)
    repeat(lambda: model(x))
