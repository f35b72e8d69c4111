"""ResNet-50 fed by a DataLoader with workers that decode nothing, but take their time to start."""

import torch
import torch.nn.functional as F
from loop import DEVICE, ON_GPU, run
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

BATCH, SIDE = (128, 224) if ON_GPU else (2, 32)


class Images(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3, SIDE, SIDE), index % 7 / 7), index % 1000


def make_model() -> nn.Module:
    if not ON_GPU:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    from torchvision.models import resnet50

    return resnet50().to(DEVICE, memory_format=torch.channels_last)


torch.backends.cudnn.benchmark = True
model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(
    Images(), BATCH, num_workers=8 if ON_GPU else 1, pin_memory=ON_GPU, persistent_workers=True
)
batches = iter(loader)


def step() -> None:
    images, labels = next(batches)
    images, labels = images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        loss = F.cross_entropy(model(images), labels % 8 if not ON_GPU else labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    run(step)
