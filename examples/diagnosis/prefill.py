"""The prompt of a language model: large products, so the tensor cores bind it."""

import torch
from loop import CUDA, DEVICE, Decoder, repeat

hidden, length = (4096, 4096) if CUDA else (256, 256)
dtype = torch.bfloat16 if CUDA else torch.float32
model = Decoder(layers=4, hidden=hidden, heads=hidden // 128).to(DEVICE, dtype)
prompt = torch.randn(2, length, hidden, device=DEVICE, dtype=dtype)

with torch.inference_mode():
    repeat(lambda: model(prompt))
