"""Counters of a device during the profiled steps, by another process: with a made-up cupti."""

import sys
import time
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors import storage
from gpuprof.collectors.live import cuda, pm_sampling
from gpuprof.collectors.live.pm_sampling import recorder
from gpuprof.collectors.live.pm_sampling.recorder import INTERVAL_NS, PmSampler
from gpuprof.roofline.analyze import analyze

DATA = Path(__file__).parents[1] / "data" / "measured"
WORKER = str(Path(pm_sampling.__file__).with_name("worker.py"))
# As cupti-python 13.4, whose Collector counts what one pass can hold. The first sample of a second
# recording reaches back to the end of the one before.
CUPTI = """
import time
from types import SimpleNamespace
class Collector:
    def __init__(self, device_index=0):
        assert device_index == 3
    def enable(self):
        {enable}
    def configure(self, *, metrics, sampling_interval):
        if {refuses}:
            raise ValueError("Requested PM sampling configuration is not supported.")
        self.metrics, self.interval = metrics, sampling_interval
    def start(self):
        self.since = time.time_ns() + {late_ns}
    def stop(self):
        self.until = time.time_ns() + {late_ns}
    def decode(self, max_samples):
        first = [SimpleNamespace(start_timestamp=self.since - 10**9,
                 end_timestamp=self.since, metric_values=[0.0] * len(self.metrics))]
        return first + [
            SimpleNamespace(start_timestamp=at, end_timestamp=at + self.interval,
                            metric_values=[10.0 * (1 + n) for n in range(len(self.metrics))])
            for at in range(self.since, self.until, self.interval)]
    def disable(self):
        pass
"""


# Calls of the driver that all answer the same.
DRIVER = """
import ctypes
class Driver:
    def __getattr__(self, name):
        return lambda *arguments: {status}
ctypes.CDLL = lambda name: Driver()
"""


def sampler(
    folder: Path,
    *,
    enable: str = "pass",
    refuses: str = "False",
    late_ns: int = 0,
    driver_status: int = 0,
) -> PmSampler:
    package = folder / "cupti"
    package.mkdir()
    (package / "__init__.py").touch()
    source = CUPTI.format(enable=enable, refuses=refuses, late_ns=late_ns)
    (package / "pm_sampling.py").write_text(source)
    code = DRIVER.format(status=driver_status)
    code += f"import runpy, sys\nsys.path.insert(0, {str(folder)!r})\nsys.argv[0] = 'worker'\n"
    return PmSampler((sys.executable, "-c", f"{code}runpy.run_path({WORKER!r}, None, '__main__')"))


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "in_use", lambda: True)
    monkeypatch.setattr(cuda, "current_device", lambda: 3)


def recorded(made: PmSampler) -> tuple[list[dict[str, object]], int, int]:
    """Rows of about 5 ms, and Unix times around them."""
    before_ns = time.time_ns()
    made.start()
    time.sleep(0.005)
    rows = [dict(row) for row in made.stop()["samples"]]
    return rows, before_ns, time.time_ns()


@pytest.mark.parametrize("late_ns", [0, -(10**18), 10**15])
def test_windows_follow_each_other_in_unix_time(tmp_path: Path, late_ns: int) -> None:
    rows, before_ns, after_ns = recorded(sampler(tmp_path, late_ns=late_ns))
    assert len(rows) >= 50
    starts = [int(str(row["window_start_ns"])) for row in rows]
    assert before_ns <= starts[0]
    assert starts[-1] <= after_ns
    assert {later - earlier for earlier, later in pairwise(starts)} == {INTERVAL_NS}
    assert {
        (row["device"], row["tensor_active_percent"], row["dram_active_percent"]) for row in rows
    } == {(3, 10.0, 20.0)}


def test_what_does_not_fit_one_pass_is_left_out(tmp_path: Path) -> None:
    rows, _, _ = recorded(sampler(tmp_path, refuses="len(metrics) > 1 or 'tensor' in metrics[0]"))
    assert {tuple(row) for row in rows} == {
        ("time_ns", "device", "window_start_ns", "window_end_ns", "dram_active_percent")
    }


@pytest.mark.parametrize(
    ("enable", "refuses", "said"),
    [
        ("raise PermissionError('counters are for root')", "False", "counters are for root"),
        ("raise ModuleNotFoundError(\"No module named 'x'\")", "False", "pm_sampling_python"),
        ("pass", "True", "is not supported"),
        ("import os; os._exit(1)", "False", "its process ended with exit code 1$"),
        ("import sys; sys.exit('no driver')", "False", "ended with exit code 1: no driver"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "False",
            "its process was ended by SIGSEGV; its libcupti and",
        ),
    ],
)
def test_what_stops_it_is_said(tmp_path: Path, enable: str, refuses: str, said: str) -> None:
    made = sampler(tmp_path, enable=enable, refuses=refuses)
    with pytest.raises(RuntimeError, match=said):
        made.start()
    assert made.stop() == {}


def test_a_driver_that_refuses_is_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="RuntimeError: cuInit: CUDA error 100"):
        sampler(tmp_path, driver_status=100).start()


def test_a_worker_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_PATIENCE_S", 0.1)
    made = sampler(tmp_path, enable="time.sleep(60)")
    with pytest.raises(RuntimeError, match="does not answer"):
        made.start()


def test_without_a_gpu_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "in_use", lambda: False)
    made = sampler(tmp_path)
    made.start()
    assert made.stop() == {}


def test_figures_of_nvmls_windows_stay_as_they_are() -> None:
    capture = storage.load(DATA / "h200_products")
    plain = analyze(capture)
    first = int(capture.kernels["start_ns"].min())  # type: ignore[arg-type]
    fine = pl.DataFrame(
        {
            "rank": 0,
            "time_ns": [first + (n + 1) * INTERVAL_NS for n in range(100)],
            "device": 0,
            "window_start_ns": [first + n * INTERVAL_NS for n in range(100)],
            "window_end_ns": [first + (n + 1) * INTERVAL_NS for n in range(100)],
            "tensor_active_percent": 96.0,
        }
    )
    samples = pl.concat([capture.samples, fine], how="diagonal_relaxed").cast(
        dict(capture.samples.schema)  # type: ignore[arg-type]
    )
    assert samples.height == capture.samples.height + 100
    with_fine = analyze(
        capture.__class__(
            capture.manifest, capture.processes, **{**capture.tables(), "samples": samples}
        )
    )
    assert with_fine.activity == plain.activity
    assert with_fine.device_state == plain.device_state
    assert with_fine.step_readings == plain.step_readings
    for found, expected in zip(with_fine.kernels, plain.kernels, strict=True):
        assert found.reading is not None
        assert expected.reading is not None
        assert found.reading.sm_clock_mhz == expected.reading.sm_clock_mhz
        assert found.reading.power_watts == pytest.approx(expected.reading.power_watts)
        assert found.reading.roof_fraction == expected.reading.roof_fraction
