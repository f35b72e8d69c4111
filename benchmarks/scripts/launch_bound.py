"""Hundreds of tiny operators a step: the time goes to launching them, not to running them."""

import torch
from self_timing import run
from torch import Tensor, nn


class ManySmallOps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(200):
            x = torch.relu(x + 1)
        return x


device = "cuda" if torch.cuda.is_available() else "cpu"
model = ManySmallOps()
x = torch.randn(64, 64, device=device)


def step() -> None:
    with torch.no_grad():
        model(x)


# A GPU's clock takes seconds to settle.
run(step, steps=3000 if device == "cuda" else 60)
