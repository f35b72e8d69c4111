"""Calibration: the rates that a device reaches here, to stand beside the datasheet's.

Each ceiling is the median over repeats of a known kernel that is warm and large; its spread says
how steady the machine was. A GPU takes about ten seconds, a CPU a few.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec
import torch

from gpuprof.collectors.manifest import Calibration, Device, MeasuredCeiling
from gpuprof.collectors.nvml import NvmlSampler, slowdown_reasons
from gpuprof.reference_kernels.calibration import gemm
from gpuprof.reference_kernels.calibration.stream import make_streams
from gpuprof.reference_kernels.calibration.timing import Call, time_call, time_repeats

_REPEATS = 7
_REPEAT_S = 0.05
_WARMUP_S = {"cuda": 0.3, "cpu": 0.05}
_SMALLEST_GEMM = 512
_LARGEST_GEMM = 8192
# A product that takes this long is large enough for a steady rate.
_LONG_ENOUGH_S = {"cuda": 0.02, "cpu": 0.03}
# The smallest product taking longer is emulated: its rate is no ceiling worth the wait.
_TOO_SLOW_S = 0.5
_GPU_ARRAY_BYTES = 4 * 2**30
_CPU_ARRAY_BYTES = 128 * 2**20
_NVML_INTERVAL_NS = 20_000_000
# A quiet machine's own services take a few percent.
_IDLE_PERCENT = 10.0
_CPU_WATCH_S = 0.3
# NVML's utilisation is an average over up to a second.
_GPU_WATCH_S = 1.2

Progress = Callable[[str], None]


def calibrate(device: Device, progress: Progress = lambda _: None) -> Calibration:
    """Measure the compute and DRAM ceilings of `device`, which must be of this machine.

    Precisions that the device or this torch cannot run are left out. `progress` is told in words
    what is measured next. torch's settings are as before afterwards.
    """
    place = "cpu" if device.kind == "cpu" else f"cuda:{device.index}"
    context = nullcontext() if device.kind == "cpu" else torch.cuda.device(device.index)
    busy = busy_note(device)
    with torch.inference_mode(), context:
        measured = (*_compute(device, place, progress), *_memory(device, place, progress))
    ceilings = tuple(msgspec.structs.replace(c, method=c.method + busy) for c in measured)
    return Calibration(
        device=device,
        torch=str(torch.__version__),
        threads=torch.get_num_threads() if device.kind == "cpu" else None,
        measured_ns=time.time_ns(),
        ceilings=ceilings,
    )


def busy_note(device: Device) -> str:
    """ "; the CPU was 60 % busy" where others used `device` just now, else ""."""
    if device.kind == "cpu":
        share, what = _cpu_busy_percent(), "the CPU"
    else:
        share, what = _gpu_busy_percent(device), "the GPU"
    return f"; {what} was {share:.0f} % busy with other work" if share > _IDLE_PERCENT else ""


def available_memory_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Memory that this process may still take, of the machine and of its container."""
    limits = []
    if meminfo.exists():
        lines = meminfo.read_text().splitlines()
        limits += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    maximum, current = cgroup / "memory.max", cgroup / "memory.current"
    if maximum.exists() and current.exists() and maximum.read_text().strip() != "max":
        limits.append(int(maximum.read_text()) - int(current.read_text()))
    return min(limits, default=None)


def _cpu_busy_percent(statistics_file: Path = Path("/proc/stat")) -> float:
    """Share of all cores that did not idle while this process slept; 0 where nothing tells."""
    if not statistics_file.exists():
        return 0.0

    def idle_and_total() -> tuple[int, int]:
        # user nice system idle iowait irq softirq steal: man 5 proc
        times = [int(field) for field in statistics_file.read_text().split("\n", 1)[0].split()[1:9]]
        return times[3] + times[4], sum(times)

    idle_before, total_before = idle_and_total()
    time.sleep(_CPU_WATCH_S)
    idle, total = idle_and_total()
    passed = total - total_before
    return 100 * (1 - (idle - idle_before) / passed) if passed else 0.0


def _gpu_busy_percent(device: Device) -> float:
    """NVML's utilisation once it no longer covers what this process did before; 0 if unknown."""
    torch.cuda.synchronize(device.index)
    sampler = NvmlSampler([device.index])
    sampler.start()
    time.sleep(_GPU_WATCH_S)
    readings: list[float] = sampler.stop()["utilisation_percent"].drop_nulls().to_list()
    return readings[-1] if readings else 0.0


def _compute(device: Device, place: str, progress: Progress) -> Iterator[MeasuredCeiling]:
    precisions = gemm.CPU_PRECISIONS if device.kind == "cpu" else gemm.GPU_PRECISIONS
    for precision in precisions:
        progress(f"matrix product {precision}")
        with gemm.float32_products(tf32=precision == "tf32"):
            size = _gemm_size(place, precision)
            if size is None:
                continue
            call = gemm.make_gemm(place, precision, size)
            seconds, state = _measure(device, call)
        yield MeasuredCeiling(
            kind="compute",
            name=f"GEMM {precision}",
            rate=gemm.gemm_flops(size) / statistics.median(seconds),
            spread=_spread(seconds),
            repeats=len(seconds),
            precision=precision,
            method=f"matrix product of {size} x {size}, random data{state}",
        )


def _memory(device: Device, place: str, progress: Progress) -> Iterator[MeasuredCeiling]:
    progress("DRAM bandwidth")
    array_bytes = _array_bytes(device)
    if array_bytes is None:
        return
    for stream in make_streams(place, array_bytes):
        progress(f"DRAM {stream.name}")
        seconds, state = _measure(device, stream.call)
        yield MeasuredCeiling(
            kind="memory",
            name=f"DRAM {stream.name}",
            rate=stream.bytes_moved / statistics.median(seconds),
            spread=_spread(seconds),
            repeats=len(seconds),
            level="DRAM",
            method=f"{stream.traffic}, {array_bytes / 2**20:.0f} MiB each{state}",
        )


def _measure(device: Device, call: Call) -> tuple[tuple[float, ...], str]:
    """Seconds a call of each repeat, and the state of a GPU meanwhile in words."""
    cuda = device.kind != "cpu"
    kind = "cuda" if cuda else "cpu"
    sampler = NvmlSampler([device.index], interval_ns=_NVML_INTERVAL_NS) if cuda else None
    if sampler is not None:
        sampler.start()
    seconds = time_repeats(
        call,
        cuda=cuda,
        repeats=_REPEATS,
        repeat_s=_REPEAT_S,
        warmup_s=_WARMUP_S[kind],
    )
    return seconds, "" if sampler is None else _gpu_state(sampler)


def _gpu_state(sampler: NvmlSampler) -> str:
    """ "; SM clock 1755 MHz, software power cap", or "" where NVML does not tell."""
    samples = sampler.stop()
    clocks: list[int] = samples["sm_clock_mhz"].drop_nulls().to_list()
    if not clocks:
        return ""
    bits = 0
    for reasons in samples["throttle_reasons"].drop_nulls():
        bits |= reasons
    return ", ".join([f"; SM clock {statistics.median(clocks):.0f} MHz", *slowdown_reasons(bits)])


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


def _spread(seconds: tuple[float, ...]) -> float:
    rates = [1 / value for value in seconds]
    return (max(rates) - min(rates)) / statistics.median(rates)
