"""Runs a step many times and, if asked, measures it: the figure that gpuprof's is compared with.

SELF_TIMING=clock       CUDA events, or the host's clock on a CPU, around the same steps that
                        gpuprof times by default (after 3, for 10); prints their median in ns
SELF_TIMING=profiler    the same under torch.profiler, as a script that profiles itself has it
unset                   only runs
"""

import os
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch.profiler import ProfilerActivity, profile

WARMUP, TIMED = 3, 10


def run(step: Callable[[], None], steps: int) -> None:
    """Run `step` `steps` times, measuring as the environment asks."""
    how = os.environ.get("SELF_TIMING", "")
    if not how:
        for _ in range(steps):
            step()
        return
    for _ in range(WARMUP):
        step()
    if how == "profiler":
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        with profile(activities=activities, record_shapes=True):
            print(median_ns(step))
    else:
        print(median_ns(step))


def median_ns(step: Callable[[], None]) -> float:
    return _by_events(step) if torch.cuda.is_available() else _by_clock(step)


def _by_clock(step: Callable[[], None]) -> float:
    times = []
    for _ in range(TIMED):
        start = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def _by_events(step: Callable[[], None]) -> float:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(TIMED + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) * 1e6 for a, b in pairwise(events))
