"""The state of a device before and while it is measured."""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import torch

from gpuprof.collectors.live.collected import table_of
from gpuprof.collectors.live.cpu_caches import usable_core_numbers
from gpuprof.collectors.live.nvml.sampler import NvmlSampler
from gpuprof.collectors.live.nvml.slowdowns import slowdown_reasons
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.machine.quiet import BUSY

NVML_INTERVAL_NS = 20_000_000
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


class OtherWork:
    """The share of the cores that other programs use, from when this is made."""

    def __init__(
        self,
        statistics_file: Path = Path("/proc/stat"),
        own_seconds: Callable[[], float] = lambda: sum(os.times()[:2]),
    ) -> None:
        self._file = statistics_file
        self._own_seconds = own_seconds
        self._before = self._busy_and_total()

    def share(self) -> float | None:
        """So far; None where the system does not tell."""
        after = self._busy_and_total()
        if self._before is None or after is None or after[1] == self._before[1]:
            return None
        busy, total = (later - earlier for later, earlier in zip(after, self._before, strict=True))
        return min(max(busy / total, 0.0), 1.0)

    def _busy_and_total(self) -> tuple[float, float] | None:
        """Seconds that other programs used the cores that are ours to use, and all of them had."""
        try:
            lines = self._file.read_text().splitlines()
        except OSError:
            return None
        usable = {f"cpu{core}" for core in usable_core_numbers()}
        busy = total = 0
        for line in lines:
            name, *fields = line.split()
            if name in usable:
                # user nice system idle iowait irq softirq steal: man 5 proc
                times = [int(field) for field in fields[:8]]
                total += sum(times)
                busy += sum(times) - times[3] - times[4]
        ticks = os.sysconf("SC_CLK_TCK")
        return (busy / ticks - self._own_seconds(), total / ticks) if total else None


def other_work_sentence(share: float | None, what: str, when: str) -> str:
    """ "idle: other programs used 3 % of the CPU meanwhile", or that it was busy with them."""
    if share is None:
        return f"not known to be idle: how busy {what} was could not be read"
    state = "busy, so figures may be low" if share > BUSY else "idle"
    return f"{state}: other programs used {share:.0%} of {what} {when}"


def gpu_other_work(device: Device) -> float | None:
    """NVML's utilisation once it no longer covers what this process did before, as a share."""
    torch.cuda.synchronize(device.index)
    sampler = NvmlSampler([device.index])
    sampler.start()
    time.sleep(_GPU_WATCH_S)
    samples = stop_sampling(sampler)
    readings: list[float] = samples["utilisation_percent"].drop_nulls().to_list()
    return readings[-1] / 100 if readings else None


def stop_sampling(sampler: NvmlSampler) -> pl.DataFrame:
    """End `sampler`; the table `samples`, without rows where NVML is not available."""
    return table_of("samples", sampler.stop())


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
    return warm_conditions(stop_sampling(sampler), 2 * _WARMING_SIZE**3 * count / passed)


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
