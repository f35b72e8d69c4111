"""Launch cost: what starting work costs the host, and the device between two starts."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gpuprof.collectors.errors import MissingDependencyError
from gpuprof.collectors.manifest import Device, LaunchCost
from gpuprof.reference_kernels.calibration.on_chip import compile_on_chip
from gpuprof.reference_kernels.calibration.probe import Call
from gpuprof.reference_kernels.calibration.timing import spread
from gpuprof.reference_kernels.nvrtc import CompilationError, CudaKernel, architecture_of

_REPEATS = 30
# Fewer than the 1,024 launches that a stream's queue holds, so that the host never waits for room.
_LAUNCHES = 500
# Cycles of the device for which it does not start: longer than queueing takes.
_HOLD_CYCLES = 40_000_000


def launch_costs(device: Device) -> Iterator[LaunchCost]:
    """Cost of the smallest torch operator and, with the extra `cuda`, of an empty kernel.

    The host's is the least over the repeats, because whatever interrupts it only adds; the
    device's is the median. `device` must be the current one.
    """
    place = torch.device("cpu") if device.kind == "cpu" else torch.device("cuda", device.index)
    one = torch.zeros(1, device=place)
    yield _measure("torch operator", lambda: one.add_(1.0), cuda=device.kind != "cpu")
    if device.kind != "cuda":
        return
    try:
        nothing = CudaKernel(compile_on_chip(architecture_of(place)), "nothing")
    except (MissingDependencyError, CompilationError):
        return
    yield _measure("empty kernel", lambda: nothing.launch((1, 1, 1), (1, 1, 1)), cuda=True)


def _measure(what: str, call: Call, *, cuda: bool) -> LaunchCost:
    # The first one loads the kernel.
    _queue(call, cuda=cuda)
    times = [_queue(call, cuda=cuda) for _ in range(_REPEATS)]
    host = [passed for passed, _ in times]
    device = [passed for _, passed in times if passed is not None]
    return LaunchCost(
        what=what,
        host_ns=min(host),
        host_spread=spread(host),
        device_ns=statistics.median(device) if device else None,
        device_spread=spread(device) if device else None,
        repeats=_REPEATS,
    )


def _queue(call: Call, *, cuda: bool) -> tuple[float, float | None]:
    """Nanoseconds a call, of the host and of the device, which starts when all are queued."""
    start, end = _events() if cuda else (None, None)
    if start is not None:
        torch.cuda.synchronize()
        hold: Callable[[int], None] = torch.cuda._sleep
        hold(_HOLD_CYCLES)
        start.record()
    began = time.perf_counter_ns()
    for _ in range(_LAUNCHES):
        call()
    host = (time.perf_counter_ns() - began) / _LAUNCHES
    if start is None or end is None:
        return host, None
    end.record()
    torch.cuda.synchronize()
    return host, start.elapsed_time(end) * 1e6 / _LAUNCHES


def _events() -> tuple[Any, Any]:
    make_event: Callable[..., Any] = torch.cuda.Event
    return make_event(enable_timing=True), make_event(enable_timing=True)
