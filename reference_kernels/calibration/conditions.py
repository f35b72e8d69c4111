"""The state of a device before and while it is measured."""

import statistics
import time
from pathlib import Path

import polars as pl
import torch

from gpuprof.collectors.live.nvml.sampler import NvmlSampler
from gpuprof.collectors.live.nvml.slowdowns import slowdown_reasons
from gpuprof.collectors.manifest import Device

NVML_INTERVAL_NS = 20_000_000
# A quiet machine's own services take a few percent.
_IDLE_PERCENT = 10.0
_CPU_WATCH_S = 0.3
# NVML's utilisation is an average over up to a second.
_GPU_WATCH_S = 1.2
_WARMING_S = 1.0
_WARMING_SIZE = 8192
_WARMING_BATCH = 8
# Slow-downs that are a fault of the machine. A power cap is how a GPU works under load.
_FAULTS = frozenset(
    {"hardware slowdown", "software thermal slowdown", "hardware thermal slowdown"}
    | {"hardware power brake"}
)


def idle_condition(device: Device) -> str:
    """ "idle before: the GPU was 0 % busy", or a warning where others used `device` just now."""
    if device.kind == "cpu":
        share, what = _cpu_busy_percent(), "the CPU"
    else:
        share, what = _gpu_busy_percent(device), "the GPU"
    if share is None:
        return f"not known to be idle: how busy {what} was could not be read"
    if share > _IDLE_PERCENT:
        return f"not idle: {what} was {share:.0f} % busy with other work, so figures may be low"
    return f"idle before: {what} was {share:.0f} % busy"


def warm_up(device: Device) -> tuple[str, ...]:
    """Run matrix products on a GPU for a second. Says what it settled at and what slowed it."""
    factors = torch.randn(_WARMING_SIZE, _WARMING_SIZE, device="cuda", dtype=torch.float16)
    product = torch.empty_like(factors)
    torch.mm(factors, factors, out=product)
    torch.cuda.synchronize()
    sampler = NvmlSampler([device.index], interval_ns=NVML_INTERVAL_NS)
    sampler.start()
    count, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < _WARMING_S:
        for _ in range(_WARMING_BATCH):
            torch.mm(factors, factors, out=product)
        torch.cuda.synchronize()
        count += _WARMING_BATCH
    return warm_conditions(sampler.stop()["samples"], 2 * _WARMING_SIZE**3 * count / passed)


def warm_conditions(samples: pl.DataFrame, flops_per_s: float) -> tuple[str, ...]:
    """Sentences about the `samples` of a second of matrix products at `flops_per_s`."""
    clock, celsius, milliwatts = (
        _median(samples[column])
        for column in ("sm_clock_mhz", "temperature_celsius", "power_milliwatts")
    )
    facts = [] if clock is None else [f"SM clock {clock:.0f} MHz"]
    facts += [] if celsius is None else [f"{celsius:.0f} °C"]
    facts += [] if milliwatts is None else [f"{milliwatts / 1000:.0f} W"]
    reasons = _reasons(samples)
    sustained = f"warm: fp16 products sustained {flops_per_s / 1e12:.0f} TFLOP/s for a second"
    conditions = [", ".join([sustained, *facts, *reasons])]
    if faults := _FAULTS.intersection(reasons):
        conditions.append(f"throttled ({', '.join(sorted(faults))}), so figures may be low")
    return tuple(conditions)


def clock_and_slowdowns(samples: pl.DataFrame) -> tuple[int | None, tuple[str, ...]]:
    """The median SM clock in MHz, None where NVML does not tell, and what lowered it."""
    clock = _median(samples["sm_clock_mhz"])
    return None if clock is None else round(clock), _reasons(samples)


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


def _reasons(samples: pl.DataFrame) -> tuple[str, ...]:
    bits = 0
    for reasons in samples["throttle_reasons"].drop_nulls():
        bits |= reasons
    return slowdown_reasons(bits)


def _median(column: pl.Series) -> float | None:
    values: list[int] = column.drop_nulls().to_list()
    return statistics.median(values) if values else None


def _cpu_busy_percent(statistics_file: Path = Path("/proc/stat")) -> float | None:
    """Share of all cores that did not idle while this process slept; None where nothing tells."""
    if not statistics_file.exists():
        return None

    def idle_and_total() -> tuple[int, int]:
        # user nice system idle iowait irq softirq steal: man 5 proc
        times = [int(field) for field in statistics_file.read_text().split("\n", 1)[0].split()[1:9]]
        return times[3] + times[4], sum(times)

    idle_before, total_before = idle_and_total()
    time.sleep(_CPU_WATCH_S)
    idle, total = idle_and_total()
    passed = total - total_before
    return 100 * (1 - (idle - idle_before) / passed) if passed else 0.0


def _gpu_busy_percent(device: Device) -> float | None:
    """NVML's utilisation once it no longer covers what this process did before."""
    torch.cuda.synchronize(device.index)
    sampler = NvmlSampler([device.index])
    sampler.start()
    time.sleep(_GPU_WATCH_S)
    samples = sampler.stop()["samples"]
    readings: list[float] = samples["utilisation_percent"].drop_nulls().to_list()
    return readings[-1] if readings else None
