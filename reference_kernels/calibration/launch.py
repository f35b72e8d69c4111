"""Launch cost: what starting work costs the host, and the device between two starts."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gpuprof.collectors.errors import MissingDependencyError
from gpuprof.collectors.live.cuda import hold
from gpuprof.collectors.manifest import Device, LaunchCost
from gpuprof.reference_kernels.calibration.on_chip import compile_on_chip
from gpuprof.reference_kernels.calibration.probe import Call
from gpuprof.reference_kernels.calibration.timing import spread
from gpuprof.reference_kernels.nvrtc import CompilationError, CudaKernel, architecture_of

_REPEATS = 20
# All batches of a repeat are fewer than the 1,024 launches that a stream's queue holds, so that
# the host never waits for room; one batch is too short to be interrupted each time.
_BATCHES = 25
_CALLS = 20
# For which the device does not start: longer than queueing takes.
_HOLD_NS = 20_000_000


def launch_costs(device: Device) -> Iterator[LaunchCost]:
    """Cost of the smallest torch operator and, with the extra `cuda`, of an empty kernel.

    `device` must be the current one.
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
    yield _measure("empty kernel", nothing.prepare((1, 1, 1), (1, 1, 1)), cuda=True)


def _measure(what: str, call: Call, *, cuda: bool) -> LaunchCost:
    # The first one loads the kernel.
    _queue(call, cuda=cuda)
    host: list[float] = []
    device: list[float] = []
    for _ in range(_REPEATS):
        batches, from_start_to_start = _queue(call, cuda=cuda)
        host += batches
        if from_start_to_start is not None:
            device.append(from_start_to_start)
    return LaunchCost(
        what=what,
        host_ns=min(host),
        host_median_ns=statistics.median(host),
        # A repeat in which the host did not queue everything in time takes longer, none less long.
        device_ns=min(device) if device else None,
        device_spread=spread(device) if device else None,
        batches=len(host),
        repeats=_REPEATS,
    )


def _queue(call: Call, *, cuda: bool) -> tuple[list[float], float | None]:
    """Nanoseconds a call: of the host in each batch; of the device, which starts after the last."""
    start, end = _events() if cuda else (None, None)
    if start is not None:
        torch.cuda.synchronize()
        hold(_HOLD_NS)
        start.record()
    batches = []
    for _ in range(_BATCHES):
        began = time.perf_counter_ns()
        for _ in range(_CALLS):
            call()
        batches.append((time.perf_counter_ns() - began) / _CALLS)
    if start is None or end is None:
        return batches, None
    end.record()
    torch.cuda.synchronize()
    return batches, start.elapsed_time(end) * 1e6 / (_BATCHES * _CALLS)


def _events() -> tuple[Any, Any]:
    make_event: Callable[..., Any] = torch.cuda.Event
    return make_event(enable_timing=True), make_event(enable_timing=True)
