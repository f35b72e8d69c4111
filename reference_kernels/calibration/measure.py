"""Calibration: the rates that a device reaches here, to stand beside the datasheet's.

A GPU's ceiling is the median over repeats of a known kernel, a CPU's the fastest repeat; the spread
of the repeats says how steady the machine was. A GPU takes about twenty seconds, a CPU a few.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product

import msgspec
import torch

from gpuprof.collectors.errors import MissingDependencyError
from gpuprof.collectors.live.nvml.sampler import NvmlSampler
from gpuprof.collectors.manifest import Calibration, Device, MeasuredCeiling
from gpuprof.reference_kernels.calibration import gemm
from gpuprof.reference_kernels.calibration.conditions import (
    NVML_INTERVAL_NS,
    OtherWork,
    clock_and_slowdowns,
    gpu_other_work,
    other_work_sentence,
    stop_sampling,
    warm_up,
)
from gpuprof.reference_kernels.calibration.copies import (
    copy_latencies,
    measure_copies,
    pageable_ceilings,
)
from gpuprof.reference_kernels.calibration.cpu import cpu_ceilings
from gpuprof.reference_kernels.calibration.launch import launch_costs
from gpuprof.reference_kernels.calibration.links import make_link_probes
from gpuprof.reference_kernels.calibration.memory_latency import memory_latencies
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
_WARMUP_S = 0.3
# On an H100 a burst of 10 ms ran at the full clock and repeated within 0.2 %; from 20 ms on the
# power limit lowered the clock, and from 50 ms on bursts differed by 3 % to 5 %.
_BURST_S = 0.01
_PAUSE_S = 0.1
_SMALLEST_GEMM = 512
_LARGEST_GEMM = 8192
# A product that takes this long is large enough for a steady rate.
_LONG_ENOUGH_S = 0.02
# The smallest product taking longer is emulated: its rate is no ceiling worth the wait.
_TOO_SLOW_S = 0.5
_ARRAY_BYTES = 4 * 2**30

CeilingProgress = Callable[[str], None]


def calibrate(device: Device, progress: CeilingProgress = lambda _: None) -> Calibration:
    """Measure the ceilings of `device`, which must be of this machine.

    Precisions that the device or this torch cannot run are left out, and so is what needs the
    extra `cuda` where that is absent. `progress` is told in words what is measured next. torch's
    settings are as before afterwards.
    """
    with torch.inference_mode():
        if device.kind == "cpu":
            return _calibrate_cpu(device, progress)
        with torch.cuda.device(device.index):
            return _calibrate_gpu(device, progress)


def _calibrate_cpu(device: Device, progress: CeilingProgress) -> Calibration:
    others = OtherWork()
    found = cpu_ceilings(progress)
    progress("launch cost")
    costs = launch_costs(device)
    other_work = others.share()
    return Calibration(
        device=device,
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        measured_ns=time.time_ns(),
        ceilings=_with_conditions(found.ceilings, other_work),
        launch_costs=tuple(costs),
        other_work=other_work,
        conditions=(
            other_work_sentence(other_work, "the CPU", "meanwhile"),
            f"other programs had a core in {found.disturbed} of {found.repeats} repeats, which do "
            "not count",
        ),
        left_out=tuple(found.left_out),
        refused=tuple(found.refused),
    )


def _calibrate_gpu(device: Device, progress: CeilingProgress) -> Calibration:
    left_out: list[str] = []
    progress("waiting for an idle device")
    other_work = gpu_other_work(device)
    conditions = [other_work_sentence(other_work, "the GPU", "just before")]
    progress("warming up")
    conditions += warm_up(device)
    ceilings = [_measured(device, p, progress) for p in _probes(device, left_out, progress)]
    latencies = _latencies_of_loads(device, left_out, progress)
    progress("copies by size")
    copies = measure_copies(device.index)
    if not copies:
        left_out.append("copies by size: torch's profiler recorded none that name their memory")
    ceilings = with_latencies(ceilings, {**latencies, **copy_latencies(copies)})
    ceilings += pageable_ceilings(copies)
    progress("launch cost")
    costs = launch_costs(device)
    return Calibration(
        device=device,
        torch=str(torch.__version__),
        threads=None,
        measured_ns=time.time_ns(),
        ceilings=_with_conditions(ceilings, other_work),
        launch_costs=tuple(costs),
        copies=copies,
        other_work=other_work,
        conditions=tuple(conditions),
        left_out=tuple(left_out),
    )


def _latencies_of_loads(
    device: Device, left_out: list[str], progress: CeilingProgress
) -> dict[str, float]:
    if device.kind != "cuda":
        return {}
    progress("latency of a load")
    try:
        return memory_latencies(torch.device("cuda", device.index), device.l2_cache_bytes)
    except (MissingDependencyError, CompilationError, torch.OutOfMemoryError) as error:
        left_out.append(f"latency of a load: {error}")
        return {}


def with_latencies(
    ceilings: Sequence[MeasuredCeiling], latencies: Mapping[str, float]
) -> list[MeasuredCeiling]:
    """`ceilings`, those of a level of memory or a link in `latencies`, in nanoseconds, with it."""
    return [
        msgspec.structs.replace(each, latency_ns=latencies[each.level])
        if each.level is not None and each.level in latencies
        else each
        for each in ceilings
    ]


def _with_conditions(
    ceilings: Sequence[MeasuredCeiling], other_work: float | None
) -> tuple[MeasuredCeiling, ...]:
    now_ns = time.time_ns()
    return tuple(
        msgspec.structs.replace(ceiling, other_work=other_work, measured_ns=now_ns)
        for ceiling in ceilings
    )


def _probes(device: Device, left_out: list[str], progress: CeilingProgress) -> Iterator[Probe]:
    """All that a GPU can run, each made when it is its turn: together they fill the memory."""
    place = f"cuda:{device.index}"
    yield from _gemms(place, gemm.GPU_PRECISIONS, left_out, progress)
    if device.kind == "cuda":
        try:
            yield from make_on_chip_probes(torch.device(place), device.l2_cache_bytes)
        except (MissingDependencyError, CompilationError) as error:
            left_out.append(f"vector units, caches and shared memory: {error}")
    else:
        left_out.append("vector units, caches and shared memory: their kernels are CUDA C++")
    yield from _streams(device, place, left_out)
    yield from make_link_probes(device.index)


def _measured(device: Device, probe: Probe, progress: CeilingProgress) -> MeasuredCeiling:
    progress(probe.name)
    sampler = NvmlSampler([device.index], interval_ns=NVML_INTERVAL_NS)
    sampler.start()
    if probe.in_bursts:
        seconds = time_bursts(probe.call, repeats=_REPEATS, burst_s=_BURST_S, pause_s=_PAUSE_S)
    else:
        seconds = time_repeats(probe.call, repeats=_REPEATS, repeat_s=_REPEAT_S, warmup_s=_WARMUP_S)
    clock, slowed_by = clock_and_slowdowns(stop_sampling(sampler))
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
    if size == _LARGEST_GEMM:
        # Between powers of two, tiles can fill the last wave of a GPU better.
        sizes.append(size + size // 2)
    trials = []
    for form in product(sizes, gemm.layouts(precision)):
        # The first one fits: its size was tried.
        with suppress(torch.OutOfMemoryError):
            trials.append(_trial(place, precision, *form))
    return max(trials, key=lambda trial: trial[0])[1]


def _trial(place: str, precision: str, size: int, layout: gemm.Layout) -> tuple[float, Probe]:
    """The rate of one burst of a product, and the product."""
    call = gemm.make_gemm(place, precision, size, layout)
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
    size = _SMALLEST_GEMM
    try:
        while True:
            call = gemm.make_gemm(place, precision, size)
            call()
            seconds = time_call(call)
            if size == _SMALLEST_GEMM and seconds > _TOO_SLOW_S:
                return None
            if seconds >= _LONG_ENOUGH_S or size >= _LARGEST_GEMM:
                return size
            size *= 2
    except torch.OutOfMemoryError:
        return size // 2 if size > _SMALLEST_GEMM else None
    # What a device or a build of torch does not have, it reports in these ways.
    except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError):
        return None


def _array_bytes(device: Device) -> int | None:
    """Bytes of each of three arrays; None where memory is too small to leave the caches behind."""
    available, _ = torch.cuda.mem_get_info()
    size = min(_ARRAY_BYTES, available // 4)
    return size if size > (device.l2_cache_bytes or 0) else None
