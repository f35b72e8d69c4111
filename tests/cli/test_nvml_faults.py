"""A broken pynvml under the real commands: the program runs and ends as it would without us."""

import os
import subprocess
import sys
from pathlib import Path

import fake_nvml
import pytest

import gpuprof

SCRIPT = """\
import sys
import gpuprof
for _ in range(30):
    gpuprof.step()
print("trained")
sys.exit(7)
"""
# The stand-in as a module, of which one function is broken.
MODULE = """\
from fake_nvml import FAULTS, FakeNvml, Faulty
_nvml = Faulty(FakeNvml(), {function!r}, FAULTS[{fault!r}])
def __getattr__(name):
    return getattr(_nvml, name)
"""


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(folder), str(Path(fake_nvml.__file__).parent), os.environ.get("PYTHONPATH", "")]
        ),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "CUDA_VISIBLE_DEVICES": "0",
    }
    return subprocess.run(
        [sys.executable, "-m", "gpuprof", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("function", "fault", "sampled"),
    [
        ("nvmlDeviceGetPowerUsage", "missing", True),
        ("nvmlDeviceGetUtilizationRates", "no fields", True),
        ("nvmlInit", "OSError", False),
        ("nvmlShutdown", "RuntimeError", True),
    ],
)
def test_the_program_ends_as_it_would_and_its_capture_can_be_read(
    tmp_path: Path, function: str, fault: str, sampled: bool
) -> None:
    (tmp_path / "pynvml.py").write_text(MODULE.format(function=function, fault=fault))
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run(tmp_path, "run", "-q", "-o", "out.gpuprof", "train.py")
    assert (done.returncode, done.stdout) == (7, "trained\n"), done.stderr
    assert "Traceback" not in done.stderr
    capture = gpuprof.load(tmp_path / "out.gpuprof")
    assert (capture.samples.height > 0) == sampled
    assert capture.processes[0].exit_code == 7
    if function == "nvmlDeviceGetPowerUsage":
        assert capture.samples["power_milliwatts"].null_count() == capture.samples.height
        assert capture.samples["sm_clock_mhz"].null_count() == 0


def test_doctor_says_what_does_not_answer(tmp_path: Path) -> None:
    module = MODULE.format(function="nvmlDeviceGetPowerUsage", fault="missing")
    (tmp_path / "pynvml.py").write_text(module)
    done = run(tmp_path, "doctor")
    assert done.returncode == 0, done.stderr
    assert "GPU 0 power_milliwatts" in done.stdout
    assert done.stderr == ""
