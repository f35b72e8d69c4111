"""The four hundred operators of tiny_operators.py replayed: the host launches one graph a step.

Nothing waits for the host any more. What is left are kernels too small for the device.
"""

import torch
from loop import DEVICE, repeat

x = torch.randn(4096, device=DEVICE)


def operators() -> torch.Tensor:
    y = x
    for _ in range(200):
        y = y * 1.0001 + 0.5
    return y


with torch.inference_mode():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        operators()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        operators()
    repeat(graph.replay)
