"""fp8 products back to back: a GPU lowers its clock to its power limit within 0.2 s of them."""

import torch
from loop import DEVICE, ON_GPU, run
from torch import nn

SIZE = 8192 if ON_GPU else 128


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        shape = (SIZE, SIZE)
        self.left, self.right = torch.randn(shape, device=DEVICE), torch.randn(shape, device=DEVICE)
        if ON_GPU:
            self.left = self.left.to(torch.float8_e4m3fn)
            self.right = self.right.to(torch.float8_e4m3fn).t()
            self.scale = torch.ones((), device=DEVICE)

    def forward(self) -> None:
        for _ in range(4):
            if ON_GPU:
                torch._scaled_mm(
                    self.left, self.right, self.scale, self.scale, out_dtype=torch.bfloat16
                )
            else:
                self.left @ self.right


model = Products()
with torch.no_grad():
    run(model)
