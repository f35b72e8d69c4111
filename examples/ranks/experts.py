"""A small training with an expert a rank, of which the second gets more tokens than the others.

    torchrun --nproc-per-node 4 -m gpuprof run examples/ranks/experts.py

Tokens go to their experts and back by all-to-alls of uneven shares; with gloo on CPUs and NCCL on
GPUs.
"""

import argparse
from typing import Any

import torch
import torch.distributed as dist
from job import CUDA, DEVICE, join_job
from torch import Tensor, nn

WIDTH, TOKENS = (4096, 8192) if CUDA else (256, 256)
LAYERS = 2


class Exchange(torch.autograd.Function):
    """Sends `shares[r]` rows to rank r and gets `own` from each; backward the other way round."""

    @staticmethod
    def forward(context: Any, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        context.sent, context.received = sent, received
        return exchanged(rows, sent, received)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return exchanged(gradients[0], context.received, context.sent), None, None


def exchanged(rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """What the other ranks sent here."""
    result = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(result, rows.contiguous(), received, sent)
    return result


class Layer(nn.Module):
    """A product on each rank's own tokens, and the rank's expert for the tokens sent to it."""

    def __init__(self, shares: list[int]) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.expert = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.sent = shares
        self.received = [shares[dist.get_rank()]] * len(shares)

    def forward(self, x: Tensor) -> Tensor:
        here = Exchange.apply(self.mix(x), self.sent, self.received)
        back: Tensor = Exchange.apply(self.expert(here), self.received, self.sent)
        return back


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=0.5, help="of tokens, for the second expert")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()

    join_job()
    ranks = dist.get_world_size()
    busiest = round(options.share * TOKENS)
    other = (TOKENS - busiest) // (ranks - 1)
    shares = [busiest if rank == 1 else other for rank in range(ranks)]
    model = nn.Sequential(*(Layer(shares) for _ in range(LAYERS))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(options.steps):
        x = torch.randn(sum(shares), WIDTH, device=DEVICE)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
