"""fp16 with a loss scaler that begins far too high: its first steps skip the optimizer."""

import torch
from loop import DEVICE, ON_GPU, run
from torch import nn

WIDTH, BATCH = (4096, 4096) if ON_GPU else (64, 8)
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6))).to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=ON_GPU)
scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**40, enabled=ON_GPU)
x = torch.randn(BATCH, WIDTH, device=DEVICE)


def step() -> None:
    optimizer.zero_grad()
    with torch.autocast(DEVICE, dtype=torch.float16 if ON_GPU else torch.bfloat16):
        loss = model(x).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


run(step)
