"""How long a benchmark runs before its first step."""

import time
from pathlib import Path

import pytest

from gpuprof.collectors import storage
from gpuprof.collectors.manifest import Schedule
from gpuprof.profiler.run import benchmark_recording
from gpuprof.profiler.run.benchmark_recording import record_benchmark

_STEPS = Schedule(warmup=1, timed=3, profiled=0)


def calls_of(tmp_path: Path) -> list[float]:
    """When a function was called that was recorded as a benchmark."""
    called: list[float] = []

    def call() -> None:
        called.append(time.perf_counter())
        time.sleep(0.002)

    record_benchmark(call, _STEPS, tmp_path / "b.gpuprof")
    assert storage.load(tmp_path / "b.gpuprof").steps["phase"].to_list().count("timed") == 3
    return called


def test_on_a_gpu_calls_until_its_clock_has_settled_come_before_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = len(calls_of(tmp_path))
    waits: list[int] = []
    clock = _Clock()
    monkeypatch.setattr(benchmark_recording, "time", clock)
    monkeypatch.setattr(benchmark_recording, "GPU_SETTLING_NS", 10**9)
    monkeypatch.setattr(benchmark_recording.cuda, "in_use", lambda: True)
    monkeypatch.setattr(benchmark_recording.cuda, "synchronize", lambda: waits.append(1))
    monkeypatch.setattr(benchmark_recording.cuda, "reset_peak_memory", lambda: None)
    # Recording itself must not look for the GPU that is not there.
    monkeypatch.setattr(benchmark_recording, "Recording", _Recording)
    monkeypatch.setattr(benchmark_recording, "store_final", lambda _: None)

    record_benchmark(clock.call, _STEPS, tmp_path / "c")

    # A second of calls that take a quarter of one each.
    assert clock.calls == usual + 4
    # Nothing is queued up meanwhile: each call is waited for, and the one before them.
    assert len(waits) == 4 + 1


class _Clock:
    """In the place of `time`: it goes on by a quarter of a second with each call."""

    def __init__(self) -> None:
        self.calls = 0

    def perf_counter(self) -> float:
        return self.calls / 4

    def call(self) -> None:
        self.calls += 1


class _Recording:
    """In the place of a recording."""

    def __init__(self, *_: object, **__: object) -> None:
        self.session = self

    def start(self) -> None: ...

    def step(self, _: object) -> None: ...

    def finish(self, *_: object) -> None: ...

    def close(self) -> None: ...
