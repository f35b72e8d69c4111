"""Four hundred tiny operators a step: the host binds."""

import torch
from loop import DEVICE, run
from torch import Tensor, nn


class ManySmallOps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(200):
            x = torch.relu(x + 1)
        return x


model = ManySmallOps()
x = torch.randn(64, 64, device=DEVICE)
with torch.no_grad():
    run(lambda: model(x))
