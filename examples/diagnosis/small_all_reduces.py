"""One all-reduce for each of two hundred gradients, one after the other.

    torchrun --nproc-per-node 2 -m gpuprof run examples/diagnosis/small_all_reduces.py

Fixed: one all-reduce for all of them.
"""

import json
import os
import time

import torch
import torch.distributed as dist
from loop import CUDA, FIXED
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


def wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


if __name__ == "__main__":
    # Every rank must end after the same number of steps, which a clock does not tell. The last
    # third is timed.
    steps, begin = (600 if CUDA else 60), 0.0
    for number in range(steps):
        if number == steps * 2 // 3:
            wait()
            begin = time.perf_counter()
        step()
    wait()
    if dist.get_rank() == 0:
        print(json.dumps({"step_ms": (time.perf_counter() - begin) / (steps / 3) * 1e3}))
    dist.destroy_process_group()
