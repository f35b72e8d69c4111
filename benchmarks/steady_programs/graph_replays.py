"""A CUDA graph that is captured by hand after a long first step, and then replayed."""

import time

import torch
from loop import DEVICE, ON_GPU, run
from torch import nn

WIDTH = 4096 if ON_GPU else 64
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(8))).to(
    DEVICE, torch.bfloat16 if ON_GPU else torch.float32
)
x = torch.randn(512 if ON_GPU else 4, WIDTH, device=DEVICE, dtype=next(model.parameters()).dtype)

with torch.no_grad():
    model(x)
    time.sleep(0.3)
    if ON_GPU:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(x)
        run(graph.replay, least=300)
    else:
        run(lambda: model(x))
