"""A training on several GPUs that measures its own communication; visit_two_ranks.py runs it.

    torchrun --nproc-per-node 2 -m gpuprof run tests/gpu/two_ranks_job.py ddp [--fault work]

Each rank times all its steps by CUDA events: the step, what its main stream waits for communication
(exposed), and how long collectives ran (by NCCL's own events). It writes them as JSON to
FOLDER/own.RANK.json, with the host's clock at the end of each step; what FSDP exposes is told by
steps in which each rank is alone, made at the end. The fault is the last rank's: more products in
the backward pass (work), a slow loader (loader), a sleeping host (sleep), or products on a stream
of their own (stream).
"""

import argparse
import json
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH, LAYERS, TOKENS = 4096, 6, 8192
# gpuprof has what it wants by then.
SECONDS, ALONE = 8.0, 30
EXTRA_PRODUCTS, FAULT_SECONDS = 10, 0.03
cuda: Any = torch.cuda
works: list[Any] = []


class Around:
    """Pairs of events on the current stream."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def start(self, *_: object) -> None:
        self.pairs.append(tuple(cuda.Event(enable_timing=True) for _ in range(2)))
        self.pairs[-1][0].record()

    def stop(self) -> None:
        self.pairs[-1][1].record()

    def taken(self) -> list[tuple[Any, Any]]:
        """All pairs since the last call."""
        pairs, self.pairs = self.pairs, []
        return pairs


exposed = Around()


class OwnTimes:
    """What each step took by its events, read once the device is past them: nothing waits."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.waiting: deque[dict[str, Any]] = deque()
        self.last_end: Any = None

    def step_ended(self) -> None:
        """To call after each step; the first one only begins the second."""
        end = cuda.Event(enable_timing=True)
        end.record()
        begin, self.last_end = self.last_end, end
        pairs, handles = exposed.taken(), works[:]
        works.clear()
        if begin is not None:
            self.waiting.append(
                {
                    **{"begin": begin, "end": end, "host_end_ns": time.time_ns()},
                    **{"pairs": pairs, "handles": handles},
                }
            )
        while self.waiting and self.waiting[0]["end"].query():
            self._read(**self.waiting.popleft())

    def all_read(self) -> list[dict[str, float]]:
        """Of every step."""
        cuda.synchronize()
        while self.waiting:
            self._read(**self.waiting.popleft())
        return self.steps

    def _read(
        self, begin: Any, end: Any, host_end_ns: int, pairs: list[Any], handles: list[Any]
    ) -> None:
        self.steps.append(
            {
                "host_end_ns": host_end_ns,
                "step_ms": begin.elapsed_time(end),
                "exposed_ms": sum(first.elapsed_time(last) for first, last in pairs),
                "communication_ms": sum(each._get_duration() for each in handles),
            }
        )


class Samples(Dataset[Tensor]):
    """Endless samples; with `seconds` each batch takes so long to read."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.samples = torch.randn(TOKENS, WIDTH, dtype=torch.bfloat16).pin_memory()

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Tensor:
        if self.seconds:
            time.sleep(self.seconds)  # fault: loader
        return self.samples


class Reduced(torch.autograd.Function):
    """The sum over ranks of what a tensor-parallel block makes; its gradient as it is."""

    @staticmethod
    def forward(context: Any, partial: Tensor) -> Tensor:
        return all_reduced(partial)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient


class Copied(torch.autograd.Function):
    """What goes into a tensor-parallel block; its gradient is summed over ranks."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return all_reduced(gradient.contiguous())


def all_reduced(tensor: Tensor) -> Tensor:
    exposed.start()
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    exposed.stop()
    works.append(work)
    return tensor


class Block(nn.Module):
    """Two products with an activation; of `parts` ranks each has its share of the inner width."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.up = nn.Linear(WIDTH, 2 * WIDTH // parts, bias=False)
        self.down = nn.Linear(2 * WIDTH // parts, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.parts == 1:
            return x + self.down(torch.relu(self.up(x)))
        return x + Reduced.apply(self.down(torch.relu(self.up(Copied.apply(x)))))


def recorded_all_reduce(_: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """What DDP does by default, keeping the handle that knows how long it took."""
    buffer = bucket.buffer().div_(dist.get_world_size())
    work = dist.all_reduce(buffer, async_op=True)
    works.append(work)
    return work.get_future().then(lambda future: future.value()[0])


def parallel(layers: nn.Sequential, how: str, device: torch.device) -> nn.Module:
    if how == "tensor":
        return layers
    if how == "ddp":
        model = DistributedDataParallel(
            layers, device_ids=[device.index], gradient_as_bucket_view=True
        )
        model.register_comm_hook(None, recorded_all_reduce)
        # The last gradient of a backward pass: from then on the main stream only waits.
        layers[0].up.weight.register_post_accumulate_grad_hook(exposed.start)
        return model
    ranks = dist.get_world_size() if how == "fsdp" else 1
    mesh = init_device_mesh(
        "cuda", (dist.get_world_size() // ranks, ranks), mesh_dim_names=("r", "s")
    )
    for layer in layers:
        fully_shard(layer, mesh=mesh["s"])
    fully_shard(layers, mesh=mesh["s"])
    return layers


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parallelism", choices=["ddp", "fsdp", "tensor"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fault", choices=["work", "loader", "sleep", "stream"])
    options = parser.parse_args()

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    fault = options.fault if rank == ranks - 1 else None
    factor = torch.randn(WIDTH, WIDTH, device=device, dtype=torch.bfloat16)
    own_stream = cuda.Stream()

    def made(how: str) -> Callable[[Tensor], None]:
        torch.manual_seed(0)
        blocks = [Block(ranks if how == "tensor" else 1) for _ in range(LAYERS)]
        model = parallel(nn.Sequential(*blocks).to(device, torch.bfloat16), how, device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

        def step(samples: Tensor) -> None:
            x = samples.to(device, non_blocking=True)
            if fault == "stream":
                with cuda.stream(own_stream):
                    for _ in range(EXTRA_PRODUCTS):
                        torch.mm(factor, factor)  # fault: stream
            loss = model(x).float().square().mean()
            if fault == "work":
                for _ in range(EXTRA_PRODUCTS):
                    torch.mm(x, factor)  # fault: work
            if fault == "sleep":
                time.sleep(FAULT_SECONDS)  # fault: sleep
            loss.backward()
            if how == "ddp":
                exposed.stop()
            optimizer.step()
            optimizer.zero_grad()

        return step

    step = made(options.parallelism)
    batches = iter(
        DataLoader(Samples(FAULT_SECONDS if fault == "loader" else 0.0), batch_size=None)
    )

    own = OwnTimes()
    # All ranks make as many steps.
    went_on, begun = torch.ones(1, device=device), time.time()
    while went_on.item():
        for _ in range(20):
            step(next(batches))
            own.step_ended()
        went_on.fill_(time.time() - begun < SECONDS)
        dist.broadcast(went_on, 0)
    written: dict[str, Any] = {"steps": own.all_read()}
    if options.parallelism == "fsdp":
        # The same with each rank for itself: what the step is longer than that is exposed.
        alone, own = made("alone"), OwnTimes()
        for _ in range(ALONE):
            alone(next(batches))
            own.step_ended()
        written["alone_ms"] = median(each["step_ms"] for each in own.all_read())
    (options.folder / f"own.{rank}.json").write_text(json.dumps(written))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
