"""A worker that waits for the disk: each sample is read and its file dropped from the page cache.

Fixed: the page cache keeps the files.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from loop import CUDA, DEVICE, FIXED, Convolutions, repeat
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

FILES, VALUES = 32, 1 << 18


class Samples(Dataset[Tensor]):
    """Files of 1 MiB, read from the disk each time."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"{index}.bin" for index in range(FILES)]
        for path in self.paths:
            with path.open("wb") as file:
                file.write(np.zeros(VALUES, np.float32).tobytes())
                file.flush()
                os.fsync(file.fileno())

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        file = os.open(self.paths[index % FILES], os.O_RDONLY)
        if not FIXED:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        data = os.read(file, VALUES * 4)
        os.close(file)
        return torch.frombuffer(bytearray(data), dtype=torch.float32)[:12288].view(3, 64, 64)


def main() -> None:
    model = Convolutions().to(DEVICE)
    with tempfile.TemporaryDirectory() as folder:
        dataset = Samples(Path(folder))
        loader = iter(DataLoader(dataset, batch_size=16, num_workers=1, pin_memory=CUDA))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step() -> None:
            batch = next(loader).to(DEVICE, non_blocking=True)  # expected here
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        repeat(step)


if __name__ == "__main__":
    main()
