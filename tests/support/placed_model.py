"""A small model whose operators are each called from a line of their own, and its training step."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Doubled(torch.autograd.Function):
    """Twice its input, with a backward in Python."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        (gradient,) = gradients
        return gradient * 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16, bias=False)
        self.down = nn.Linear(16, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        hidden = torch.sigmoid(hidden)
        return x + self.down(hidden)


class Model(nn.Module):
    """Two blocks, one of them used twice, and a head."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 4, bias=False)
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if self.checkpointed:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        x = self.blocks[0](x)
        x = Doubled.apply(x)
        return scaled(self.head(x))


def scaled(x: Tensor) -> Tensor:
    """A function of the program that is no module's."""
    return x.exp()


def training_step(model: nn.Module) -> Callable[[], None]:
    """One step of training on the same input."""
    x, target = torch.ones(3, 8), torch.zeros(3, 4)
    loss_of = nn.MSELoss()

    def step() -> None:
        output = model(x)
        loss = loss_of(output, target)
        loss.backward()

    return step
