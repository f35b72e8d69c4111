"""One token a step for a few sequences: every weight is read for it, so the memory binds it."""

import torch
from loop import CUDA, DEVICE, Decoder, repeat

hidden, past = (8192, 2048) if CUDA else (256, 256)
dtype = torch.bfloat16 if CUDA else torch.float32
heads = hidden // 128
model = Decoder(layers=4, hidden=hidden, heads=heads).to(DEVICE, dtype)
token = torch.randn(4, 1, hidden, device=DEVICE, dtype=dtype)
cache_shape = (2, 4, heads, past, 128)
caches = [torch.randn(cache_shape, device=DEVICE, dtype=dtype) for _ in range(4)]

with torch.inference_mode():
    repeat(lambda: model(token, caches))
