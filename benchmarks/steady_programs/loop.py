"""Runs a step for some seconds and prints the median of its last third, as the script sees it.

The figure that gpuprof's are compared with: CUDA events around each step (the host's clock without
a GPU), long after clocks, caches and loaders have settled.
"""

import os
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import torch

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
SECONDS = float(os.environ.get("STEADY_SECONDS", "4"))


def run(step: Callable[[], object], *, least: int = 60) -> None:
    """Call `step` for `SECONDS`, at least `least` times, and print the median in ns."""
    marks: list[float | torch.cuda.Event] = [_mark()]
    begun = time.perf_counter()
    while time.perf_counter() - begun < SECONDS or len(marks) <= least:
        step()
        marks.append(_mark())
    if ON_GPU:
        torch.cuda.synchronize()
    last = marks[-len(marks) // 3 :]
    lengths = [_between_ns(before, after) for before, after in pairwise(last)]
    print("steady_ns", statistics.median(lengths), flush=True)


def _mark() -> "float | torch.cuda.Event":
    if not ON_GPU:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between_ns(before: "float | torch.cuda.Event", after: "float | torch.cuda.Event") -> float:
    if isinstance(before, float) and isinstance(after, float):
        return (after - before) * 1e9
    assert isinstance(before, torch.cuda.Event)
    assert isinstance(after, torch.cuda.Event)
    return before.elapsed_time(after) * 1e6
