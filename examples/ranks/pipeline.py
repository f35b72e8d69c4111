"""A small training in a pipeline, a stage a rank, of which one stage can be given more layers.

    torchrun --nproc-per-node 4 -m gpuprof run examples/ranks/pipeline.py --chunks 2

1F1B, interleaved where a stage has several chunks of layers; with gloo on CPUs and NCCL on GPUs.
"""

import argparse

import torch
import torch.distributed as dist
from job import CUDA, DEVICE, join_job
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

WIDTH, LAYERS, ROWS = (4096, 8, 1024) if CUDA else (512, 4, 64)
MICRO_BATCHES = 8


def layers(count: int) -> nn.Sequential:
    """Products of equal size, each with an activation."""
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(count))
    ).to(DEVICE)


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=1, help="chunks of layers a stage")
    parser.add_argument("--slow-stage", type=int, help="a stage with twice the layers")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()

    join_job()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count = 2 * LAYERS if rank == options.slow_stage else LAYERS
    chunks = [layers(count) for _ in range(options.chunks)]
    places = [rank + ranks * chunk for chunk in range(options.chunks)]
    stages = [
        PipelineStage(chunk, place, ranks * options.chunks, torch.device(DEVICE))
        for chunk, place in zip(chunks, places, strict=True)
    ]
    if options.chunks == 1:
        schedule = Schedule1F1B(stages[0], MICRO_BATCHES, loss_fn=loss_of)
    else:
        schedule = ScheduleInterleaved1F1B(stages, MICRO_BATCHES, loss_fn=loss_of)
    parameters = [each for chunk in chunks for each in chunk.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-4)
    samples = torch.randn(MICRO_BATCHES * ROWS, WIDTH, device=DEVICE)
    for _ in range(options.steps):
        inputs = (samples,) if rank == 0 else ()
        target = {"target": samples} if rank == ranks - 1 else {}
        schedule.step(*inputs, **target)
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
