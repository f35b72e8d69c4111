"""A vocabulary of 50257 and a hidden size of 2047: rows of 16-bit floats start at odd places.

Fixed: both are padded to a multiple of 64.
"""

import torch
from loop import DEVICE, FIXED, repeat
from torch import nn

hidden, vocabulary = (2048, 50304) if FIXED else (2047, 50257)
model = nn.Sequential(
    nn.Linear(hidden, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, vocabulary, bias=False)
).to(DEVICE, torch.bfloat16)
batch = torch.randn(8192, hidden, device=DEVICE, dtype=torch.bfloat16)

with torch.inference_mode():
    repeat(lambda: model(batch))  # expected here
