"""Reads the loss in every step, and only then prepares the next batch.

The host waits for the device, and then the device for the host. Fixed: the losses stay on the
device, so that the host prepares the next batch while the device works.
"""

import numpy as np
import torch
from loop import CUDA, DEVICE, FIXED, Decoder, repeat

hidden, layers, length = (4096, 2, 2048) if CUDA else (128, 2, 32)
dtype = torch.bfloat16 if CUDA else torch.float32
model = Decoder(layers=layers, hidden=hidden, heads=hidden // 128).to(DEVICE, dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
batch = torch.randn(2, length, hidden, device=DEVICE, dtype=dtype)
history: list[float] = []
total = torch.zeros((), device=DEVICE)


def prepare() -> None:
    """Some milliseconds on the host, as to shuffle and pack a batch."""
    np.random.permutation(400_000)


def step() -> None:
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if FIXED:
        total.add_(loss.detach())
    else:
        history.append(loss.item())  # expected here
    prepare()


repeat(step)
