"""A compiled model that leaves its graph after every layer, to look at a value on the host.

Fixed: nothing is looked at.
"""

import torch
from loop import CUDA, DEVICE, FIXED, repeat
from torch import Tensor, nn


class Checked(nn.Module):
    """Layers between which the activations are looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(24))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
            if not FIXED and bool(x.isnan().any()):  # expected here
                raise ValueError("not a number")
        return x


model = Checked().to(DEVICE)
compiled = torch.compile(model, backend="inductor" if CUDA else "aot_eager")
x = torch.randn(256, 256, device=DEVICE)
with torch.no_grad():
    repeat(lambda: compiled(x))
