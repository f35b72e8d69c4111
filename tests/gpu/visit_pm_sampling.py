"""CUPTI's PM sampling beside GPM: is it a finer time line, and what does it cost the program?

    python tests/gpu/visit_pm_sampling.py

Needs NVIDIA's package cupti-python (13.3 or later), and the folder of libcupti and libnvperf_host
in LD_LIBRARY_PATH. A long product of matrices and a long copy run for a second each, without and
with sampling every 100 microseconds. Printed are their rates, the SM clock that NVML saw, and of
the samples how many there were, their distance, and tensor and DRAM activity, which follow from the
products' and the copies' own work. Under 20 seconds; without permission or package the first line
says so.
"""

import sys
import time
from itertools import pairwise
from statistics import median
from typing import Any

import torch

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
    return 0


if __name__ == "__main__":
    sys.exit(main())
