"""What following a program costs a profiled step: its lines and modules, and whole stacks.

Steps with and without take turns in one run.

    python benchmarks/program_positions.py

Small layers, so that a step is mostly Python: 24 transformer blocks of width 32 on a CPU, forward
and backward, and forward alone. On a GPU the share is lower wherever the device is what takes time.
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gpuprof.collectors.live.program_positions import ProgramPositions

PAIRS = 30


class Block(nn.Module):
    """A pre-norm block without heads."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        attended = nn.functional.scaled_dot_product_attention(self.q(y), self.k(y), self.v(y))
        x = x + self.out(attended)
        return x + self.down(torch.relu(self.up(x)))


def main() -> None:
    torch.set_num_threads(1)
    model = nn.Sequential(*(Block() for _ in range(24)))
    x = torch.randn(1, 8, 32)

    def train() -> None:
        model(x).sum().backward()

    @torch.no_grad()
    def infer() -> None:
        model(x)

    for name, step in (("forward and backward", train), ("forward alone", infer)):
        compare(name, step)


def compare(name: str, step: Callable[[], None]) -> None:
    """Print what it costs `step`, a profiled one each time."""

    def step_ns() -> int:
        start = time.perf_counter_ns()
        step()
        return time.perf_counter_ns() - start

    for what, whole_stacks in (("lines and modules", False), ("whole stacks", True)):
        recorder = ProgramPositions(whole_stacks=whole_stacks)
        plain, followed, positions = [], [], 0
        with torch.profiler.profile(record_shapes=True):
            for _ in range(PAIRS):
                plain.append(step_ns())
                recorder.start()
                followed.append(step_ns())
                positions = len(recorder.stop()["positions"])
        ratios = sorted(b / a for a, b in zip(plain, followed, strict=True))
        low, middle, high = (each - 1 for each in statistics.quantiles(ratios, n=4))
        print(
            f"{name}, {what}: {min(plain) / 1e6:.2f} ms without, {min(followed) / 1e6:.2f} with, "
            f"median of {PAIRS} pairs {middle:+.1%} (quartiles {low:+.1%}, {high:+.1%}), "
            f"{positions} positions a step"
        )


if __name__ == "__main__":
    main()
