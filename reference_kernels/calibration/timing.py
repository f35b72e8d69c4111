"""Timing of one repeated call: warmed up, in batches long enough for the clock."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from gpuprof.reference_kernels.calibration.probe import Call


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


def time_bursts(call: Call, *, repeats: int, burst_s: float, pause_s: float) -> tuple[float, ...]:
    """Seconds a call in each of `repeats` bursts on CUDA, with the device idle between them.

    Each burst begins with one call that is not timed, and is short against the time in which a
    device lowers its clock to keep to its power limit.
    """
    call()
    calls = math.ceil(burst_s / max(time_call(call, cuda=True), 1e-7))
    seconds: list[float] = []
    for _ in range(repeats):
        _synchronize(cuda=True)
        time.sleep(pause_s)
        call()
        seconds += _time_by_events(call, 1, calls)
    return tuple(seconds)


def spread(values: Sequence[float]) -> float:
    """(maximum - minimum) / median."""
    return (max(values) - min(values)) / statistics.median(values)


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
