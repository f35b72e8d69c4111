"""A decode step as it should be: one CUDA graph, and weights that keep the memory busy."""

import torch
from loop import DEVICE, Decoder, repeat

hidden, past = 8192, 2048
heads = hidden // 128
model = Decoder(layers=4, hidden=hidden, heads=heads).to(DEVICE, torch.bfloat16)
token = torch.randn(4, 1, hidden, device=DEVICE, dtype=torch.bfloat16)
cache_shape = (2, 4, heads, past, 128)
caches = [torch.randn(cache_shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(4)]

with torch.inference_mode():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(token, caches)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(token, caches)
    repeat(graph.replay)
