"""Ray Train: two workers with DistributedDataParallel; each profiles itself, the first stores.

Ray starts its workers itself, so `gpuprof run` does not reach them: gpuprof.profile does.
"""

import sys
from pathlib import Path

import ray
import ray.train
import ray.train.torch
import torch
from torch import nn

import gpuprof


def train(settings: dict[str, str]) -> None:
    model = ray.train.torch.prepare_model(
        nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
    )
    optimizer = torch.optim.AdamW(model.parameters())
    with gpuprof.profile(settings["output"], force=True):
        for _ in range(24):
            inputs = torch.randn(64, 256)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs).backward()
            optimizer.step()


def main() -> None:
    output = Path(sys.argv[1] if len(sys.argv) > 1 else "ray_train.gpuprof").absolute()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"output": str(output)},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
