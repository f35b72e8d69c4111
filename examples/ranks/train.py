"""A small training on several ranks, of which one can be given a fault.

    torchrun --nproc-per-node 4 -m gpuprof run examples/ranks/train.py ddp --fault work

Data parallel (ddp), sharded (fsdp) or tensor parallel (tensor), with gloo on CPUs and NCCL on GPUs.
The fault is the last rank's, or that of `--slow-rank`: it computes more than the others (work),
waits for a slow loader (loader), or sleeps on its host (sleep).
"""

import argparse
import time

import torch
import torch.distributed as dist
from job import CUDA, DEVICE, join_job
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH, LAYERS, BATCH = 256, 3, 64
FAULT_SECONDS = 0.1
EXTRA_WIDTH, EXTRA_PRODUCTS = (8192, 20) if CUDA else (512, 40)


class Samples(Dataset[Tensor]):
    """Random samples; with `seconds` each batch takes so long to read."""

    def __init__(self, steps: int, seconds: float) -> None:
        self.steps = steps
        self.seconds = seconds
        self.samples = torch.randn(BATCH, WIDTH)

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> Tensor:
        if self.seconds:
            time.sleep(self.seconds)  # fault: loader
        return self.samples


class FeedForward(nn.Module):
    """Two products with an activation in between."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


def parallel(model: nn.Sequential, how: str) -> nn.Module:
    """`model` on all ranks."""
    if how == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh("cuda" if CUDA else "cpu", (dist.get_world_size(),))
    if how == "tensor":
        plan = {"*.up": ColwiseParallel(), "*.down": RowwiseParallel()}
        return parallelize_module(model, mesh, plan)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def compute_more(factor: Tensor) -> None:
    for _ in range(EXTRA_PRODUCTS):
        torch.mm(factor, factor)  # fault: work


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parallelism", choices=["ddp", "fsdp", "tensor"])
    parser.add_argument("--fault", choices=["work", "loader", "sleep"])
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=FAULT_SECONDS, help="of loader and sleep")
    options = parser.parse_args()

    join_job()
    is_slow = dist.get_rank() == options.slow_rank % dist.get_world_size()
    fault = options.fault if is_slow else None

    layers = nn.Sequential(*(FeedForward() for _ in range(LAYERS))).to(DEVICE)
    model = parallel(layers, options.parallelism)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    factor = torch.randn(EXTRA_WIDTH, EXTRA_WIDTH, device=DEVICE)
    seconds = options.seconds if fault == "loader" else 0.0
    for samples in DataLoader(Samples(options.steps, seconds), batch_size=None):
        loss = model(samples.to(DEVICE)).square().mean()
        if fault == "work":
            compute_more(factor)
        if fault == "sleep":
            time.sleep(options.seconds)  # fault: sleep
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    # torch 2.13 waits forever where a DDP model goes while a thread of gloo, which needs Python's
    # lock for that, lets go of the last all-reduce of a backward pass.
    dist.barrier()
    time.sleep(1.0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
