"""Timing of one repeated call on a GPU: warmed up, in batches long enough for the clock."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

from gpuprof.reference_kernels.calibration.probe import Call


def time_call(call: Call) -> float:
    """Seconds of one call, without warm-up, waiting for the device."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def time_repeats(
    call: Call, *, repeats: int, repeat_s: float, warmup_s: float
) -> tuple[float, ...]:
    """Seconds a call in each of `repeats` batches of about `repeat_s` seconds.

    The batches are queued back to back and timed by events, so that the device is never idle
    between them.
    """
    call()
    single = max(time_call(call), 1e-7)
    for _ in range(math.ceil(warmup_s / single)):
        call()
    return _time_by_events(call, repeats, math.ceil(repeat_s / single))


def time_bursts(call: Call, *, repeats: int, burst_s: float, pause_s: float) -> tuple[float, ...]:
    """Seconds a call in each of `repeats` bursts, with the device idle between them.

    Each burst begins with one call that is not timed, and is short against the time in which a
    device lowers its clock to keep to its power limit.
    """
    call()
    calls = math.ceil(burst_s / max(time_call(call), 1e-7))
    seconds: list[float] = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        time.sleep(pause_s)
        call()
        seconds += _time_by_events(call, 1, calls)
    return tuple(seconds)


def spread(values: Sequence[float]) -> float:
    """(maximum - minimum) / median."""
    return (max(values) - min(values)) / statistics.median(values)


def _time_by_events(call: Call, repeats: int, calls: int) -> tuple[float, ...]:
    make_event: Callable[..., Any] = torch.cuda.Event
    events = [make_event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        for _ in range(calls):
            call()
        event.record()
    torch.cuda.synchronize()
    return tuple(start.elapsed_time(end) / 1e3 / calls for start, end in pairwise(events))
