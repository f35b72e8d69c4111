"""Hugging Face Accelerate: a loop of one's own, gradients accumulated over micro-batches.

accelerate_loop.py [MICRO_BATCHES], 2 by default.
"""

import sys

import torch
from accelerate import Accelerator
from torch import nn


def main() -> None:
    micro_batches = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    accelerator = Accelerator(gradient_accumulation_steps=micro_batches)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(64 * 24 * micro_batches, 256))
    loader = torch.utils.data.DataLoader(data, batch_size=64)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (inputs,) in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), inputs)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
