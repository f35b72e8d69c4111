"""Products of 32-bit floats, as torch does them unless told otherwise: no tensor core works.

Fixed: TF32 is allowed.
"""

import torch
from loop import DEVICE, FIXED, repeat
from torch import nn

torch.backends.cuda.matmul.allow_tf32 = FIXED
model = nn.Sequential(nn.Linear(4096, 16384), nn.ReLU(), nn.Linear(16384, 4096)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
batch = torch.randn(4096, 4096, device=DEVICE)


def step() -> None:
    model(batch).square().mean().backward()  # expected here
    optimizer.step()
    optimizer.zero_grad()


repeat(step)
