"""A worker that computes each sample for too long: the step waits for its batch.

Fixed: the samples are cheap.
"""

import torch
from loop import CUDA, DEVICE, FIXED, Convolutions, repeat
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[Tensor]):
    """Images that cost some milliseconds of Python each."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        if not FIXED:
            sum(value * value for value in range(20_000))
        return torch.full((3, 64, 64), float(index % 7))


def main() -> None:
    model = Convolutions().to(DEVICE)
    loader = iter(DataLoader(Samples(), batch_size=32, num_workers=1, pin_memory=CUDA))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        batch = next(loader).to(DEVICE, non_blocking=True)  # expected here
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    repeat(step)


if __name__ == "__main__":
    main()
