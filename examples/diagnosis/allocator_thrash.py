"""Empties torch's cache of device memory in every step, so each step asks the driver again.

Fixed: the cache is left alone.
"""

import torch
from loop import DEVICE, FIXED, repeat
from torch import nn

layers = [layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
model = nn.Sequential(*layers).to(DEVICE, torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
batch = torch.randn(8192, 2048, device=DEVICE, dtype=torch.bfloat16)


def step() -> None:
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if not FIXED:
        torch.cuda.empty_cache()  # expected here


repeat(step)
