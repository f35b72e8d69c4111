"""FSDP2 as torchtitan uses it: fully_shard on each block, then on the model.

torchrun --nproc-per-node 2 -m gpuprof run fsdp2_loop.py [MICRO_BATCHES], 1 by default.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    micro_batches = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    model = nn.Sequential(*(Block(128) for _ in range(3))).to(device)
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(24):
        optimizer.zero_grad()
        for micro_batch in range(micro_batches):
            model.set_requires_gradient_sync(micro_batch == micro_batches - 1)
            model(torch.randn(64, 128, device=device)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
