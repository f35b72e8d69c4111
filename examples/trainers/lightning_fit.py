"""PyTorch Lightning: Trainer.fit, gradients accumulated over micro-batches.

lightning_fit.py [MICRO_BATCHES], 2 by default.
"""

import sys

import lightning
import torch
from torch import nn


class Autoencoder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        (inputs,) = batch
        return nn.functional.mse_loss(self.layers(inputs), inputs)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    micro_batches = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    data = torch.utils.data.TensorDataset(torch.randn(64 * 24 * micro_batches, 256))
    trainer = lightning.Trainer(
        max_epochs=1,
        accumulate_grad_batches=micro_batches,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Autoencoder(), torch.utils.data.DataLoader(data, batch_size=64))


if __name__ == "__main__":
    main()
