"""A training step as it should be: compiled, in bf16, with a fused optimizer and large shapes."""

import torch
from loop import CUDA, DEVICE, Decoder, repeat

hidden, length = (4096, 2048) if CUDA else (256, 128)
model = Decoder(layers=4, hidden=hidden, heads=hidden // 128).to(DEVICE)
if CUDA:
    model = model.to(torch.bfloat16)
compiled = torch.compile(model) if CUDA else model
optimizer = torch.optim.AdamW(model.parameters(), fused=CUDA)
batch = torch.randn(8, length, hidden, device=DEVICE, dtype=next(model.parameters()).dtype)


def step() -> None:
    compiled(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


repeat(step)
