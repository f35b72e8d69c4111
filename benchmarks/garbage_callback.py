"""What the callback that times garbage collections costs, as a ratio within one run.

Three loops, each without and with the callback, in turn: one that keeps lists and does nothing
else, which is as often as Python collects; one that leaves cycles behind; a small training step.

Times are those on a core, which other programs lengthen less.

    .venv/bin/python benchmarks/garbage_callback.py
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from gpuprof.collectors.live import garbage_collection


def keep_lists() -> None:
    """Containers that are kept: a collection for each few hundred."""
    for _ in range(40):
        _ = [[number] for number in range(5000)]


def leave_cycles() -> None:
    """Containers that only a collection frees."""
    for _ in range(100_000):
        cycle: list[object] = []
        cycle.append(cycle)


def training_step() -> Callable[[], None]:
    """A step of a small model, as a program makes it."""
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(torch.randn(64, 256)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    """Measure and print one line a loop."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60)
    repeats = parser.parse_args().repeats
    loops = {
        "keeps lists": keep_lists,
        "leaves cycles": leave_cycles,
        "training step": training_step(),
    }
    for name, loop in loops.items():
        loop()
        times: dict[bool, list[float]] = {False: [], True: []}
        collections = 0
        for turn in range(2 * repeats):
            counted = turn % 2 == 1
            if counted:
                garbage_collection.install()
            began = time.thread_time()
            loop()
            times[counted].append(time.thread_time() - began)
            collections += sum(each.collections for each in garbage_collection.collected())
            garbage_collection.remove()
        ratio = statistics.median(times[True]) / statistics.median(times[False])
        least = min(times[True]) / min(times[False])
        print(
            f"{name}: {collections / repeats:.1f} collections each, with the callback "
            f"{ratio:.4f} times as long (medians), {least:.4f} (least)"
        )


if __name__ == "__main__":
    main()
