"""A compiled model that leaves its graph after every layer, to look at a value on the host.

Fixed: nothing is looked at.
"""

import torch
from loop import CUDA, DEVICE, FIXED, repeat
from torch import Tensor, nn


class Layer(nn.Module):
    """A layer whose result is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.linear(x))
        if not FIXED and bool(x.isnan().any()):  # expected here
            raise ValueError("not a number")
        return x


model = nn.Sequential(*(Layer() for _ in range(24))).to(DEVICE)
compiled = torch.compile(model, backend="inductor" if CUDA else "aot_eager")
x = torch.randn(256, 256, device=DEVICE)
with torch.no_grad():
    repeat(lambda: compiled(x))
