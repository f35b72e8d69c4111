"""Every block is computed a second time in the backward pass, though the memory would do.

Fixed: the activations are kept.
"""

import torch
from loop import CUDA, DEVICE, FIXED, Block, repeat
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

hidden, length = (2048, 2048) if CUDA else (128, 64)


class Checkpointed(nn.Module):
    """Blocks whose activations are thrown away."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(hidden, hidden // 128) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if FIXED:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=False)  # expected here
        return x


model = Checkpointed().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), fused=CUDA)
batch = torch.randn(4, length, hidden, device=DEVICE)


def step() -> None:
    with torch.autocast(DEVICE, torch.bfloat16, enabled=CUDA):
        loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


repeat(step)
