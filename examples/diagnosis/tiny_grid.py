"""Eight long rows: the scan gives each row to one block, and the device has over a hundred.

Fixed: each row is scanned in 32 pieces, whose sums are added afterwards.
"""

import torch
from loop import DEVICE, FIXED, repeat
from torch import Tensor, nn

PIECES = 32


class Scan(nn.Module):
    """Running sums along rows."""

    def forward(self, rows: Tensor) -> Tensor:
        if not FIXED:
            return rows.cumsum(1)  # expected here
        pieces = rows.view(rows.shape[0], PIECES, -1).cumsum(2)
        before = pieces[:, :, -1].cumsum(1).roll(1, 1)
        before[:, 0] = 0
        return (pieces + before[:, :, None]).view(rows.shape)


rows = torch.randn(8, 1 << 22, device=DEVICE)
model = Scan()
with torch.inference_mode():
    repeat(lambda: model(rows))
