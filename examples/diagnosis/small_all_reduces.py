"""One all-reduce for each of two hundred gradients, one after the other.

    torchrun --nproc-per-node 2 -m gpuprof run examples/diagnosis/small_all_reduces.py

Fixed: one all-reduce for all of them.
"""

import os

import torch
import torch.distributed as dist
from loop import CUDA, FIXED, repeat
from torch import nn

DEVICE = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if CUDA else "cpu"
if CUDA:
    torch.cuda.set_device(DEVICE)
dist.init_process_group("nccl" if CUDA else "gloo")
model = nn.Sequential(*(nn.Linear(128, 128) for _ in range(100))).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
batch = torch.randn(512, 128, device=DEVICE)


def step() -> None:
    model(batch).square().mean().backward()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    if FIXED:
        together = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(together)
    else:
        for gradient in gradients:
            dist.all_reduce(gradient)  # expected here
    optimizer.step()
    optimizer.zero_grad()


# Every rank must end after the same number of steps, which a clock does not tell.
for _ in range(400 if CUDA else 60):
    step()
repeat(lambda: None, seconds=0.1)
dist.destroy_process_group()
