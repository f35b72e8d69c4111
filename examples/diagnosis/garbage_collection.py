"""Collects Python's garbage in every step, with a hundred thousand objects to look through.

Fixed: not.
"""

import gc

import torch
from loop import CUDA, DEVICE, FIXED, Decoder, repeat

hidden = 1024 if CUDA else 128
model = Decoder(layers=2, hidden=hidden, heads=hidden // 128).to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), fused=CUDA)
batch = torch.randn(4, 256 if CUDA else 32, hidden, device=DEVICE)
records = [{"index": index, "tags": [index]} for index in range(40_000)]


def step() -> None:
    with torch.autocast(DEVICE, torch.bfloat16, enabled=CUDA):
        loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if not FIXED:
        gc.collect()  # expected here


repeat(step)
