"""What a recording keeps when something that it looks at fails."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors import storage
from gpuprof.collectors.live.collection import LiveCollection
from gpuprof.collectors.live.collector import Note
from gpuprof.collectors.live.roster import ROSTER
from gpuprof.collectors.manifest import Schedule
from gpuprof.profiler.run import recording
from gpuprof.profiler.run.benchmark_recording import record_benchmark

_STEPS = Schedule(warmup=1, timed=3, profiled=0)


def failing(error: BaseException) -> Callable[..., object]:
    def fail(*_: object) -> object:
        raise error

    return fail


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("live_model", "the model"),
        ("collect_fingerprint", "the environment"),
        ("graph_breaks", "graph breaks"),
        ("_peak_memory_bytes", "peak memory"),
    ],
)
def test_a_fact_that_cannot_be_read_is_a_warning(
    name: str, called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, name, failing(KeyError("params")))
    assert record_benchmark(lambda: 42, _STEPS, tmp_path / "b.gpuprof") == 42
    capture = storage.load(tmp_path / "b.gpuprof")
    assert capture.steps.filter(pl.col("phase") == "timed").height == 3
    assert capture.processes[0].warnings == (f"{called} could not be read: 'params'",)


@pytest.mark.parametrize("method", ["__init__", "start", "slow_down", "stop"])
def test_a_live_collector_that_fails_keeps_nothing_from_running(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Collector:
        def __init__(self, *_: object) -> None:
            self.notes: list[Note] = []

        def start(self) -> None:
            pass

        def slow_down(self) -> None:
            pass

        def stop(self) -> dict[str, pl.DataFrame]:
            return {}

    monkeypatch.setattr(Collector, method, failing(OSError("no bus")))
    row = replace(ROSTER[0], needs_gpu=False, make=Collector)
    monkeypatch.setattr(recording, "LiveCollection", lambda scope: LiveCollection(scope, (row,)))
    assert record_benchmark(lambda: 42, _STEPS, tmp_path / "b.gpuprof") == 42
    (warning,) = storage.load(tmp_path / "b.gpuprof").processes[0].warnings
    assert warning.endswith("so GPU state is missing: no bus")
