"""Reads the loss in every step: the host waits for the device, and then the device for the host.

Fixed: the losses stay on the device and are read once in fifty steps.
"""

import torch
from loop import CUDA, DEVICE, FIXED, Decoder, repeat

hidden, layers = (1024, 8) if CUDA else (128, 2)
model = Decoder(layers=layers, hidden=hidden, heads=hidden // 128).to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), fused=CUDA)
batch = torch.randn(4, 512 if CUDA else 32, hidden, device=DEVICE)
history: list[float] = []
kept = torch.zeros((), device=DEVICE)


def step() -> None:
    with torch.autocast(DEVICE, torch.bfloat16, enabled=CUDA):
        loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if FIXED:
        kept.add_(loss.detach())
    else:
        history.append(loss.item())  # expected here


repeat(step)
