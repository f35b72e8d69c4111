"""Three narrow products of one large tensor: it is read three times.

Fixed: one product with the weights side by side.
"""

import torch
from loop import DEVICE, FIXED, repeat
from torch import Tensor, nn

tokens, hidden, narrow = 65536, 4096, 64


class Narrow(nn.Module):
    """What low-rank adapters of query, key and value do first."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(hidden, narrow, bias=False) for _ in range(3))
        self.together = nn.Linear(hidden, 3 * narrow, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if FIXED:
            return self.together(x).split(narrow, -1)
        return self.query(x), self.key(x), self.value(x)  # expected here


model = Narrow().to(DEVICE, torch.bfloat16)
x = torch.randn(tokens, hidden, device=DEVICE, dtype=torch.bfloat16)
with torch.inference_mode():
    repeat(lambda: model(x))
