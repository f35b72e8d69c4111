"""Samples a device's counters when told to. A program of its own, which imports nothing of ours.

    python worker.py DEVICE INTERVAL_NS LINES_OF_METRICS

It needs NVIDIA's package cupti-python. On stdout, a line of JSON each: which metrics the device
counts in one pass ({"metrics": [...]}) or what stops it ({"problem": "..."}); and for each line
"start" and "stop" on stdin the Unix times before and after ({"started": [...]}), and what was
sampled since ({"samples": [[start, end, value, ...], ...]}).
"""

import ctypes
import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any


def main() -> None:
    """Serve until stdin ends."""
    device, interval_ns, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split()
    try:
        from cupti import pm_sampling

        hold(device)
        collector = pm_sampling.Collector(device_index=device)
        collector.enable()
        metrics = configured(collector, names, interval_ns)
    except Exception as error:
        tell(problem=f"{type(error).__name__}: {error}")
        return
    tell(metrics=metrics)
    try:
        for line in sys.stdin:
            answer(collector, line.strip())
    except Exception as error:
        tell(problem=f"{type(error).__name__}: {error}")
    finally:
        collector.disable()


def hold(device: int) -> None:
    """Begin CUDA and hold a context of the device, without which CUPTI knows none."""
    library = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    calls: tuple[tuple[str, Callable[[], int]], ...] = (
        ("cuInit", lambda: library.cuInit(0)),
        (
            "cuDevicePrimaryCtxRetain",
            lambda: library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        ),
        ("cuCtxSetCurrent", lambda: library.cuCtxSetCurrent(context)),
    )
    for name, call in calls:
        if status := call():
            raise RuntimeError(f"{name}: CUDA error {status}")


def configured(collector: Any, names: Sequence[str], interval_ns: int) -> list[str]:
    """The most of `names` that are counted in one pass. Raises what the device says of a single."""
    for number in range(len(names), 0, -1):
        for metrics in combinations(names, number):
            if not (refused := refusal(collector, metrics, interval_ns)):
                return list(metrics)
    raise ValueError(refused)


def refusal(collector: Any, metrics: Sequence[str], interval_ns: int) -> str:
    """Why the device does not count these metrics together; "" where it will."""
    try:
        collector.configure(metrics=list(metrics), sampling_interval=interval_ns)
    except ValueError as error:
        return str(error)
    return ""


def answer(collector: Any, command: str) -> None:
    """Do what one line of stdin asks for."""
    if command == "start":
        before = time.time_ns()
        collector.start()
        tell(started=[before, time.time_ns()])
    elif command == "stop":
        collector.stop()
        # A minute; what is beyond it is lost.
        decoded = collector.decode(max_samples=600_000)
        tell(samples=[[s.start_timestamp, s.end_timestamp, *s.metric_values] for s in decoded])


def tell(**what: object) -> None:
    """Write one line of JSON."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
