"""Records one function as a benchmark: each call is a step."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gpuprof.collectors.live import cuda
from gpuprof.collectors.manifest import GPU_SETTLING_NS, Schedule
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.recorded import Subject
from gpuprof.profiler.run.recording import Recording
from gpuprof.profiler.run.session_options import SessionOptions
from gpuprof.profiler.run.store_recorded import store_final

R = TypeVar("R")

SOURCE = "pytest"


def record_benchmark(call: Callable[[], R], schedule: Schedule, output: Path) -> R:
    """Call `call` as often as `schedule` needs, store the capture at `output`; the last result.

    Steps are known beforehand, so nothing is looked for, and the capture is stored once, at the
    end. What an exception leaves is stored too. On a GPU calls until its clock has settled come
    before the first step.
    """
    place = CaptureOutput(output, force=True)
    place.refuse_existing()
    options = SessionOptions(schedule=schedule, steps="explicit", first_look=False)
    subject = Subject(place, output.stem, source=SOURCE, command=())
    recording = Recording(subject, options)
    # Of several benchmarks in one process each has its own peak.
    cuda.reset_peak_memory()
    recording.start()
    failed = True
    try:
        _settle(call)
        # The first mark opens a step, and the profiler drops one to warm up.
        for _ in range(schedule.warmup + schedule.timed + schedule.profiled + 3):
            result = call()
            recording.session.step(None)
        failed = False
    finally:
        try:
            store_final(recording.finish("exception" if failed else "finished", int(failed)))
        finally:
            recording.close()
    return result


def _settle(call: Callable[[], object]) -> None:
    """Keep the GPU busy, once the first call has compiled and allocated what it needs."""
    call()
    if not cuda.in_use():
        return
    cuda.synchronize()
    end = time.perf_counter() + GPU_SETTLING_NS / 1e9
    while time.perf_counter() < end:
        call()
        cuda.synchronize()
