"""DeepSpeed: an engine with ZeRO of stage 1, 2 or 3, gradients accumulated over micro-batches.

deepspeed_zero.py [STAGE [MICRO_BATCHES]], 1 and 2 by default.
"""

import sys

import deepspeed
import torch
from torch import nn


def main() -> None:
    stage = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    micro_batches = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
    settings = {
        "train_micro_batch_size_per_gpu": 64,
        "gradient_accumulation_steps": micro_batches,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "steps_per_print": 1000,
    }
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=settings
    )
    for _ in range(24 * micro_batches):
        inputs = torch.randn(64, 256, device=engine.device)
        loss = nn.functional.mse_loss(engine(inputs), inputs)
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
