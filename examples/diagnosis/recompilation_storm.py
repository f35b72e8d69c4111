"""A compiled function that is specialised for a number which changes in every step.

Fixed: the number is a tensor.
"""

import torch
from loop import DEVICE, FIXED, repeat
from torch import Tensor, nn


class Scaled(nn.Module):
    """A layer whose scale torch.compile takes for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(512, 512)
        self.scale: float | Tensor = 1.0

    def forward(self, x: Tensor) -> Tensor:  # expected here
        return torch.relu(self.linear(x)) * self.scale


torch._dynamo.config.cache_size_limit = 100_000
torch._dynamo.config.accumulated_cache_size_limit = 100_000
torch._dynamo.config.specialize_float = True
layer = Scaled().to(DEVICE)
compiled = torch.compile(layer, backend="aot_eager")
x = torch.randn(512, 512, device=DEVICE)
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-6)
steps = 0


def step() -> None:
    global steps
    steps += 1
    scale = 1.0 + steps / 1e4
    layer.scale = torch.tensor(scale, device=DEVICE) if FIXED else scale
    compiled(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


repeat(step)
