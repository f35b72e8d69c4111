"""Calibration: the rates that a device reaches here, to stand beside the datasheet's.

Each ceiling is the median over repeats of a known kernel; its spread says how steady the machine
was. A GPU takes about twenty seconds, a CPU a few.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from itertools import product

import torch

from gpuprof.collectors.errors import MissingDependencyError
from gpuprof.collectors.live.nvml.sampler import NvmlSampler
from gpuprof.collectors.manifest import Calibration, Device, MeasuredCeiling
from gpuprof.reference_kernels.calibration import gemm
from gpuprof.reference_kernels.calibration.conditions import (
    NVML_INTERVAL_NS,
    available_memory_bytes,
    clock_and_slowdowns,
    idle_condition,
    warm_up,
)
from gpuprof.reference_kernels.calibration.launch import launch_costs
from gpuprof.reference_kernels.calibration.links import make_link_probes
from gpuprof.reference_kernels.calibration.on_chip import make_on_chip_probes
from gpuprof.reference_kernels.calibration.probe import Probe
from gpuprof.reference_kernels.calibration.stream import make_streams
from gpuprof.reference_kernels.calibration.timing import (
    spread,
    time_bursts,
    time_call,
    time_repeats,
)
from gpuprof.reference_kernels.nvrtc import CompilationError

_REPEATS = 7
_REPEAT_S = 0.05
_WARMUP_S = {"cuda": 0.3, "cpu": 0.05}
# On an H100 a burst of 10 ms ran at the full clock and repeated within 0.2 %; from 20 ms on the
# power limit lowered the clock, and from 50 ms on bursts differed by 3 % to 5 %.
_BURST_S = 0.01
_PAUSE_S = 0.1
_SMALLEST_GEMM = 512
_LARGEST_GEMM = 8192
# A product that takes this long is large enough for a steady rate.
_LONG_ENOUGH_S = {"cuda": 0.02, "cpu": 0.03}
# The smallest product taking longer is emulated: its rate is no ceiling worth the wait.
_TOO_SLOW_S = 0.5
_GPU_ARRAY_BYTES = 4 * 2**30
_CPU_ARRAY_BYTES = 128 * 2**20

CeilingProgress = Callable[[str], None]


def calibrate(device: Device, progress: CeilingProgress = lambda _: None) -> Calibration:
    """Measure the ceilings of `device`, which must be of this machine.

    Precisions that the device or this torch cannot run are left out, and so is what needs the
    extra `cuda` where that is absent. `progress` is told in words what is measured next. torch's
    settings are as before afterwards.
    """
    cpu = device.kind == "cpu"
    left_out: list[str] = []
    progress("waiting for an idle device")
    conditions = [idle_condition(device)]
    with torch.inference_mode(), nullcontext() if cpu else torch.cuda.device(device.index):
        if not cpu:
            progress("warming up")
            conditions += warm_up(device)
        ceilings = [_measured(device, p, progress) for p in _probes(device, left_out, progress)]
        progress("launch cost")
        costs = launch_costs(device)
    return Calibration(
        device=device,
        torch=str(torch.__version__),
        threads=torch.get_num_threads() if cpu else None,
        measured_ns=time.time_ns(),
        ceilings=tuple(ceilings),
        launch_costs=tuple(costs),
        conditions=tuple(conditions),
        left_out=tuple(left_out),
    )


def _probes(device: Device, left_out: list[str], progress: CeilingProgress) -> Iterator[Probe]:
    """All that `device` can run, each made when it is its turn: together they fill the memory."""
    if device.kind == "cpu":
        yield from _gemms("cpu", gemm.CPU_PRECISIONS, left_out, progress)
        yield from _streams(device, "cpu", left_out)
        return
    place = f"cuda:{device.index}"
    yield from _gemms(place, gemm.GPU_PRECISIONS, left_out, progress)
    if device.kind == "cuda":
        try:
            yield from make_on_chip_probes(torch.device(place), device.l2_cache_bytes)
        except (MissingDependencyError, CompilationError) as error:
            left_out.append(f"vector units, L2 and shared memory: {error}")
    else:
        left_out.append("vector units, L2 and shared memory: their kernels are CUDA C++")
    yield from _streams(device, place, left_out)
    yield from make_link_probes(device.index)


def _measured(device: Device, probe: Probe, progress: CeilingProgress) -> MeasuredCeiling:
    progress(probe.name)
    cuda = device.kind != "cpu"
    sampler = NvmlSampler([device.index], interval_ns=NVML_INTERVAL_NS) if cuda else None
    if sampler is not None:
        sampler.start()
    if cuda and probe.in_bursts:
        seconds = time_bursts(probe.call, repeats=_REPEATS, burst_s=_BURST_S, pause_s=_PAUSE_S)
    else:
        seconds = time_repeats(
            probe.call,
            cuda=cuda,
            repeats=_REPEATS,
            repeat_s=_REPEAT_S,
            warmup_s=_WARMUP_S["cuda" if cuda else "cpu"],
        )
    clock, slowed_by = (
        (None, ()) if sampler is None else clock_and_slowdowns(sampler.stop()["samples"])
    )
    # The host's own memory traffic only ever slows a link down.
    typical = min(seconds) if probe.kind == "link" else statistics.median(seconds)
    return MeasuredCeiling(
        kind=probe.kind,
        name=probe.name,
        rate=probe.amount / typical,
        spread=spread([1 / value for value in seconds]),
        repeats=len(seconds),
        precision=probe.precision,
        unit=probe.unit,
        level=probe.level,
        method=probe.method,
        sm_clock_mhz=clock,
        slowed_by=slowed_by,
    )


def _gemms(
    place: str, precisions: tuple[str, ...], left_out: list[str], progress: CeilingProgress
) -> Iterator[Probe]:
    for precision in precisions:
        progress(f"size of GEMM {precision}")
        with gemm.float32_products(tf32=precision == "tf32"):
            size = _gemm_size(place, precision)
            if size is None:
                left_out.append(f"GEMM {precision}: not on this device, or emulated")
                continue
            yield _fastest_gemm(place, precision, size)


def _fastest_gemm(place: str, precision: str, size: int) -> Probe:
    """The product in the size and layout that are fastest in one trial."""
    sizes = [size]
    if place != "cpu" and size == _LARGEST_GEMM:
        # Between powers of two, tiles can fill the last wave of a GPU better.
        sizes.append(size + size // 2)
    trials = []
    for form in product(sizes, gemm.layouts(precision)):
        # The first one fits: its size was tried.
        with suppress(torch.OutOfMemoryError):
            trials.append(_trial(place, precision, *form))
    return max(trials, key=lambda trial: trial[0])[1]


def _trial(place: str, precision: str, size: int, layout: gemm.Layout) -> tuple[float, Probe]:
    """The rate of one burst (CPU: one call) of a product, and the product."""
    call = gemm.make_gemm(place, precision, size, layout)
    if place == "cpu":
        call()
        seconds = time_call(call, cuda=False)
    else:
        (seconds,) = time_bursts(call, repeats=1, burst_s=_BURST_S, pause_s=_PAUSE_S)
    probe = Probe(
        kind="compute",
        name=f"GEMM {precision}",
        call=call,
        amount=gemm.gemm_flops(size),
        method=f"{size} x {size} by {layout}, random data",
        precision=precision,
        in_bursts=True,
    )
    return probe.amount / seconds, probe


def _streams(device: Device, place: str, left_out: list[str]) -> Iterator[Probe]:
    array_bytes = _array_bytes(device)
    if array_bytes is None:
        left_out.append("DRAM: not enough free memory for arrays larger than the caches")
        return
    yield from make_streams(place, array_bytes)


def _gemm_size(place: str, precision: str) -> int | None:
    """The size whose product runs long enough for a steady rate; None where there is none."""
    kind = place.split(":")[0]
    size = _SMALLEST_GEMM
    try:
        while True:
            call = gemm.make_gemm(place, precision, size)
            call()
            seconds = time_call(call, cuda=kind == "cuda")
            if size == _SMALLEST_GEMM and seconds > _TOO_SLOW_S:
                return None
            if seconds >= _LONG_ENOUGH_S[kind] or size >= _LARGEST_GEMM:
                return size
            size *= 2
    except torch.OutOfMemoryError:
        return size // 2 if size > _SMALLEST_GEMM else None
    # What a device or a build of torch does not have, it reports in these ways.
    except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError):
        return None


def _array_bytes(device: Device) -> int | None:
    """Bytes of each of three arrays; None where memory is too small to leave the caches behind."""
    cache = device.l2_cache_bytes or 0
    if device.kind == "cpu":
        # STREAM's rule: all arrays together at least four times the last level of cache.
        wanted = max(_CPU_ARRAY_BYTES, math.ceil(4 * cache / 3))
        available = available_memory_bytes()
        share = 6
    else:
        wanted = _GPU_ARRAY_BYTES
        available, _ = torch.cuda.mem_get_info()
        share = 4
    size = wanted if available is None else min(wanted, available // share)
    return size if size > cache else None
