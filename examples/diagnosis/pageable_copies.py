"""Batches in ordinary host memory: the driver copies them twice, and the host waits for it.

Fixed: the batches are pinned, and copied on a side stream while the step before computes.
"""

import torch
from loop import DEVICE, FIXED, repeat
from torch import Tensor, nn


class Norms(nn.Module):
    """Layers that keep the device's memory busy for some milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LayerNorm(4096) for _ in range(80))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


model = Norms().to(DEVICE, torch.bfloat16)
host = torch.randn(8192, 4096, dtype=torch.bfloat16)
side = torch.cuda.Stream()
following: list[Tensor] = []
if FIXED:
    host = host.pin_memory()


def fetch() -> Tensor:
    with torch.cuda.stream(side):
        return host.to(DEVICE, non_blocking=True)


def step() -> None:
    if FIXED:
        batch = following.pop() if following else fetch()
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        following.append(fetch())
    else:
        batch = host.to(DEVICE)  # expected here
    model(batch)


with torch.inference_mode():
    repeat(step)
