"""Memory snapshots of torch as files, and what recording memory costs.

    python tests/gpu/record_memory_snapshot.py [--output FOLDER]

Writes training_step.pickle (three steps of a small model, with Python stacks), out_of_memory.pickle
(the same with a batch that the memory it is given does not hold) and facts.json: torch's own
statistics at the moment of each snapshot, and the length of a step under the profiler with and
without allocator events, as a ratio.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

CUDA = torch.device("cuda")
memory: Any = torch.cuda.memory


class Block(nn.Module):
    """A layer whose activations are larger than its parameters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A residual of two products."""
        y: torch.Tensor = self.down(torch.relu(self.up(self.norm(x))))
        return x + y


class Training:
    """A model with its optimizer."""

    def __init__(self, width: int, layers: int) -> None:
        self.width = width
        self.model = nn.Sequential(*(Block(width) for _ in range(layers))).to(CUDA)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def step(self, rows: int) -> None:
        """One step on `rows` rows."""
        self.optimizer.zero_grad()
        x = torch.randn(rows, self.width, device=CUDA)
        self.model(x).square().mean().backward()
        self.optimizer.step()


def facts() -> dict[str, int]:
    """What torch itself says of its allocator."""
    stats = torch.cuda.memory_stats()
    names = (
        *("allocated_bytes.all.current", "allocated_bytes.all.peak"),
        *("reserved_bytes.all.current", "reserved_bytes.all.peak"),
        *("inactive_split_bytes.all.current", "inactive_split_bytes.all.peak"),
        *("active_bytes.all.current", "requested_bytes.all.current"),
        *("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"),
    )
    return {name: stats[name] for name in names if name in stats}


def sizes(training: Training) -> dict[str, int]:
    """Bytes of the model's parameters and of their optimizer's state."""
    states = training.optimizer.state.values()
    tensors = [t for state in states for t in state.values() if torch.is_tensor(t)]
    return {
        "parameters": sum(p.nbytes for p in training.model.parameters()),
        "optimizer state": sum(t.nbytes for t in tensors if t.is_cuda),
    }


def training_step(folder: Path) -> dict[str, Any]:
    """Three steps, recorded from before the model is made."""
    memory._record_memory_history(max_entries=20_000, stacks="python")
    training = Training(256, 3)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        training.step(1000)
    torch.cuda.synchronize()
    memory._dump_snapshot(str(folder / "training_step.pickle"))
    memory._record_memory_history(enabled=None)
    return {"statistics": facts(), "sizes": sizes(training)}


def out_of_memory(folder: Path) -> dict[str, Any]:
    """A step that does not fit into the part of the memory that the process may have."""
    # Blocks of the recording before would be known without their stacks.
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(CUDA).total_memory
    torch.cuda.set_per_process_memory_fraction((512 << 20) / total)
    memory._record_memory_history(max_entries=20_000, stacks="python")
    training = Training(512, 3)
    training.step(1000)
    seen: dict[str, Any] = {}

    def observe(device: int, asked: int, allowed: int, free: int) -> None:
        memory._dump_snapshot(str(folder / "out_of_memory.pickle"))
        seen.update(device=device, asked=asked, allowed=allowed, free=free, statistics=facts())

    bindings: Any = torch._C
    bindings._cuda_attach_out_of_memory_observer(observe)
    try:
        training.step(40_000)
    except torch.OutOfMemoryError as error:
        seen["message"] = str(error)
    memory._record_memory_history(enabled=None)
    torch.cuda.set_per_process_memory_fraction(1.0)
    return {**seen, "sizes": sizes(training)}


def cost_of_recording(repeats: int = 15) -> dict[str, float]:
    """Step times under each way to record, over those of plain steps; medians of interleaved ones.

    400 small operators a step, so that the host decides how long it takes.
    """
    tensors = [torch.randn(64, 64, device=CUDA) for _ in range(8)]

    def step() -> None:
        for index in range(400):
            torch.relu(tensors[index % 8] + 1.0)
        torch.cuda.synchronize()

    def timed() -> float:
        start = time.perf_counter()
        step()
        return time.perf_counter() - start

    def profiled(profile_memory: bool) -> float:
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(
            activities=activities, record_shapes=True, profile_memory=profile_memory
        ):
            step()
            return timed()

    def with_history(**options: Any) -> float:
        memory._record_memory_history(max_entries=100_000, **options)
        step()
        took = timed()
        memory._record_memory_history(enabled=None)
        return took

    ways = {
        "profiler": lambda: profiled(False),
        "profiler with allocator events": lambda: profiled(True),
        "history without stacks": lambda: with_history(context=None),
        "history with Python stacks": lambda: with_history(context="alloc", stacks="python"),
        "plain": timed,
    }
    for way in ways.values():
        way()
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            took[name].append(way())
    plain = statistics.median(took["plain"])
    return {name: round(statistics.median(each) / plain, 3) for name, each in took.items()}


def main() -> None:
    """Record, and print the facts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("memory-snapshots"))
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    found = {
        "torch": torch.__version__,
        "training step": training_step(folder),
        "out of memory": out_of_memory(folder),
        "cost": cost_of_recording(),
    }
    text = json.dumps(found, indent=1)
    (folder / "facts.json").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
