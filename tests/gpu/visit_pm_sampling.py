"""CUPTI's PM sampling beside GPM: is it a finer time line, and what does it cost the program?

    python tests/gpu/visit_pm_sampling.py

Needs NVIDIA's package cupti-python (13.3 or later), and the folder of its libcupti and
libnvperf_host in LD_LIBRARY_PATH. A long product of matrices and a long copy run for a second each,
without and with sampling every 100 microseconds. Printed are their rates, the SM clock that NVML
saw, and of the samples how many there were, their distance, and tensor and DRAM activity, which
follow from the products' and the copies' own work. Then a program of copies and pauses runs under
`gpuprof run --pm-sampling`: do the windows lie where it copied? Under 40 seconds; without
permission or package the first line says so.
"""

import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import torch

from gpuprof.collectors import storage
from gpuprof.collectors.live.nvml.library import ask

METRICS = (
    "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
OTHERS = (
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes.sum",
    "gpc__cycles_elapsed.avg.per_second",
)
# Of the trigger by time nanoseconds, of that by clock cycles.
INTERVAL_NS = 100_000
SECONDS = 1.0


def work(kind: str) -> tuple[float, float]:
    """Run one kind of work for a second; its rate (FLOP/s or bytes/s) and the SM clock in MHz."""
    cuda: Any = torch.cuda
    if kind == "product":
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        amount = 2 * 8192**3
    else:
        a, b = (torch.empty(1 << 30, device="cuda", dtype=torch.uint8) for _ in range(2))
        amount = 2 << 30
    times = 0
    cuda.synchronize()
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    began = time.perf_counter()
    start.record()
    clocks = []
    while time.perf_counter() - began < SECONDS:
        for _ in range(20):
            torch.mm(a, b) if kind == "product" else a.copy_(b)
        times += 20
        cuda.synchronize()
        clocks.append(ask(sm_clock) or 0)
    end.record()
    cuda.synchronize()
    return amount * times / (start.elapsed_time(end) / 1000), median(clocks)


def sm_clock(library: Any) -> int:
    """The clock of the first GPU."""
    handle = library.nvmlDeviceGetHandleByIndex(0)
    clock: int = library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)
    return clock


def _configured(collector: Any) -> tuple[str, ...]:
    """The metrics of the first configuration that the device takes; () where it takes none."""
    from cupti import pm_sampling

    modes = pm_sampling.TriggerMode
    for mode in (modes.GPU_TIME_INTERVAL, modes.GPU_SYSCLK_INTERVAL):
        for metrics in (METRICS, *((metric,) for metric in (*METRICS, *OTHERS))):
            if _takes(collector, mode, metrics):
                return metrics
    return ()


def _takes(collector: Any, mode: Any, metrics: tuple[str, ...]) -> bool:
    try:
        collector.configure(metrics=list(metrics), sampling_interval=INTERVAL_NS, trigger_mode=mode)
    except Exception as error:
        print(f"{mode.name} {metrics}: {type(error).__name__}: {error}")
        return False
    print(f"{mode.name} {metrics}: taken")
    return True


PAUSING = """
import time, torch, gpuprof
a, b = (torch.empty(1 << 30, device="cuda", dtype=torch.uint8) for _ in range(2))
for _ in range(400):
    for _ in range(10):
        b.copy_(a)
    torch.cuda.synchronize()
    time.sleep(0.003)
    gpuprof.step()
"""


def beside_a_run() -> bool:
    """Whether the windows of `gpuprof run --pm-sampling` lie where the device copied."""
    with tempfile.TemporaryDirectory() as folder:
        script, output = Path(folder) / "pausing.py", Path(folder) / "pausing.gpuprof"
        script.write_text(PAUSING)
        command = [sys.executable, "-m", "gpuprof", "run", "-o", str(output), "--pm-sampling"]
        done = subprocess.run(
            [*command, str(script)], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            print(done.stderr[-2000:])
            return False
        capture = storage.load(output)
    print(*capture.processes[0].warnings, sep="\n")
    kernels = capture.kernels.filter(pl.col("step").is_not_null()).sort("start_ns")
    starts, ends = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    short = pl.col("window_end_ns") - pl.col("window_start_ns") < 10 * INTERVAL_NS
    windows = capture.samples.filter(short & pl.col("dram_active_percent").is_not_null())
    found: dict[str, list[float]] = {"within copies": [], "between them": []}
    for row in windows.iter_rows(named=True):
        start, end = row["window_start_ns"], row["window_end_ns"]
        covered = np.clip(np.minimum(ends, end) - np.maximum(starts, start), 0, None).sum()
        share = covered / (end - start)
        name = "within copies" if share > 0.98 else "between them" if share == 0 else ""
        if name and start >= starts[0] and end <= ends[-1]:
            found[name].append(row["dram_active_percent"])
    print("windows:", windows.height)
    for name, values in found.items():
        print(f"  {name}: {len(values)}", *(np.percentile(values, (5, 50, 95)) if values else ()))
    within, between = found.values()
    return bool(within and between and median(within) > 80 and median(between) < 5)


def main() -> int:
    """Print everything; 1 where nothing could be sampled."""
    torch.ones(1, device="cuda")
    for kind in ("product", "copy"):
        work(kind)
    try:
        from cupti import pm_sampling

        collector = pm_sampling.Collector(device_index=0)
        collector.enable()
    except Exception as error:
        print(f"no PM sampling: {type(error).__name__}: {error}")
        return 1
    for kind in ("product", "copy"):
        rate, clock = work(kind)
        print(f"{kind}: {rate:.4g}/s at {clock} MHz, enabled and not started")
    try:
        configured = _configured(collector)
        if not configured:
            return 1
        for kind in ("product", "copy"):
            collector.start()
            rate, clock = work(kind)
            collector.stop()
            decoded = collector.decode(max_samples=100_000)
            samples = list(decoded)
            starts = [sample.start_timestamp for sample in samples if sample.start_timestamp]
            apart = [later - earlier for earlier, later in pairwise(starts)]
            print(f"{kind}: {rate:.4g}/s at {clock} MHz, sampled: {len(samples)} samples")
            if apart:
                print(f"  apart: median {median(apart)} ns, longest {max(apart)} ns")
            for column, metric in enumerate(configured):
                values = [sample.metric_values[column] for sample in samples]
                if values:
                    print(f"  {metric}: median {median(values):.1f}, highest {max(values):.1f}")
    except Exception as error:
        print(f"PM sampling ended: {type(error).__name__}: {error}")
        return 1
    finally:
        collector.disable()
    for kind in ("product", "copy"):
        rate, clock = work(kind)
        print(f"{kind}: {rate:.4g}/s at {clock} MHz, after it")
    return 0 if beside_a_run() else 1


if __name__ == "__main__":
    sys.exit(main())
