"""Batches in ordinary host memory: the driver copies them twice, and the host waits for it.

Fixed: the batches are pinned, and copied on a side stream while the step before computes.
"""

import torch
from loop import DEVICE, FIXED, repeat
from torch import Tensor, nn

model = nn.Sequential(nn.Linear(4096, 16384), nn.ReLU(), nn.Linear(16384, 4096)).to(DEVICE)
model = model.to(torch.bfloat16)
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
