"""Timing of one repeated call: warmed up, in batches long enough for the clock."""

import math
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

Call = Callable[[], object]


def time_call(call: Call, *, cuda: bool) -> float:
    """Seconds of one call, without warm-up, waiting for the device."""
    _synchronize(cuda)
    start = time.perf_counter()
    call()
    _synchronize(cuda)
    return time.perf_counter() - start


def time_repeats(
    call: Call, *, cuda: bool, repeats: int, repeat_s: float, warmup_s: float
) -> tuple[float, ...]:
    """Seconds a call in each of `repeats` batches of about `repeat_s` seconds.

    On CUDA the batches are queued back to back and timed by events, so that the device is never
    idle between them; on a CPU by the host's clock.
    """
    call()
    single = max(time_call(call, cuda=cuda), 1e-7)
    for _ in range(math.ceil(warmup_s / single)):
        call()
    calls = math.ceil(repeat_s / single)
    if cuda:
        return _time_by_events(call, repeats, calls)
    return tuple(_time_by_clock(call, calls) for _ in range(repeats))


def _time_by_clock(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _time_by_events(call: Call, repeats: int, calls: int) -> tuple[float, ...]:
    import torch

    make_event: Callable[..., Any] = torch.cuda.Event
    events = [make_event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        for _ in range(calls):
            call()
        event.record()
    torch.cuda.synchronize()
    return tuple(start.elapsed_time(end) / 1e3 / calls for start, end in pairwise(events))


def _synchronize(cuda: bool) -> None:
    if cuda:
        import torch

        torch.cuda.synchronize()
